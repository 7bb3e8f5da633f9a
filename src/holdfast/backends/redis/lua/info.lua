-- How many rows a thread has, and the newest. KEYS: the thread's.

local rows = redis.call('EXISTS', KEYS[T]) == 1 and redis.call('HLEN', KEYS[R]) or 0
if rows == 0 then
  return ''
end
local newest = redis.call('ZREVRANGE', KEYS[I], 0, 0)[1]
return u32(rows) .. string.sub(newest, 1, (string.find(newest, '\0', 1, true)))
