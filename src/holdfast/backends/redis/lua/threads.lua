-- Threads that have a row, by name; on one server.
-- KEYS: the index of threads. ARGV: the application, where to begin, how many, and whether entries that lead nowhere
-- are to go.

local app, high, limit, sweeps = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1'
local out, found = {}, 0
while found < limit do
  local size = math.min(limit - found, AT_ONCE)
  local names = redis.call('ZREVRANGEBYLEX', KEYS[1], high, '-', 'LIMIT', 0, size)
  for _, name in ipairs(names) do
    local keys = keys_of(app, name)
    local rows = redis.call('EXISTS', keys[T]) == 1 and redis.call('HLEN', keys[R]) or 0
    if rows > 0 then
      local newest = redis.call('ZREVRANGE', keys[I], 0, 0)[1]
      put(out, name)
      out[#out + 1] = u32(rows)
      put(out, string.sub(newest, 1, (string.find(newest, '\0', 1, true))))
      found = found + 1
    elseif sweeps then
      redis.pcall('ZREM', KEYS[1], name)
    end
    high = '(' .. name
  end
  if #names < size then
    break
  end
end
return table.concat(out)
