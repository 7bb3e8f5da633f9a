-- Entries that have been in doubt for long enough, each behind the moment when that began; and some more, which a hand
-- that goes round the indexes comes to. KEYS: the indexes. ARGV: how long is enough, how many, and how many more.

local time = redis.call('TIME')
local until_then = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000) - ARGV[1])
local found = redis.call('ZRANGEBYSCORE', KEYS[5], '-inf', until_then, 'WITHSCORES', 'LIMIT', 0, ARGV[2])
local out = {u32(#found / 2)}
for i = 1, #found, 2 do
  put(out, found[i + 1])
  put(out, found[i])
end
for i, kind in ipairs({'r', 'l', 't'}) do
  local last = redis.call('HGET', KEYS[4], kind)
  local members = redis.call('ZRANGEBYLEX', KEYS[i], last and '(' .. last or '-', '+', 'LIMIT', 0, ARGV[3])
  for _, member in ipairs(members) do
    put(out, kind .. member)
  end
  if #members < tonumber(ARGV[3]) then
    redis.call('HDEL', KEYS[4], kind)
  else
    redis.call('HSET', KEYS[4], kind, members[#members])
  end
end
return table.concat(out)
