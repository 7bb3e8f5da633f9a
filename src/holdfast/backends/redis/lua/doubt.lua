-- Entries that may lead nowhere, since when. KEYS: the indexes. ARGV: entries.

local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
for _, entry in ipairs(ARGV) do
  redis.call('ZADD', KEYS[5], 'NX', now, entry)
end
