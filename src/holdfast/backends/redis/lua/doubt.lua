-- Entries that may lead nowhere, since when. KEYS: the indexes. ARGV: entries; those that are gone are left out.

local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
for _, entry in ipairs(ARGV) do
  local kind = string.sub(entry, 1, 1)
  local key = kind == 'r' and KEYS[1] or kind == 'l' and KEYS[2] or KEYS[3]
  if redis.call('ZSCORE', key, string.sub(entry, 2)) then
    redis.call('ZADD', KEYS[5], 'NX', now, entry)
  end
end
