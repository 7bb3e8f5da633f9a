-- Entries for rows that are about to be written to another slot; when that was, in milliseconds.
-- KEYS: the indexes. ARGV: entries, each with a letter for its index in front. An entry that was in doubt no longer is.

for _, entry in ipairs(ARGV) do
  local kind = string.sub(entry, 1, 1)
  local key = kind == 'r' and KEYS[1] or kind == 'l' and KEYS[2] or KEYS[3]
  redis.call('ZADD', key, 0, string.sub(entry, 2))
  redis.call('ZREM', KEYS[5], entry)
end
local time = redis.call('TIME')
return string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
