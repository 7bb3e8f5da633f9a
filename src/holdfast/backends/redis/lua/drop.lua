-- A whole thread. KEYS: the thread's; the key that says for a while that this was done, so that a request which comes
-- again, or late, takes nothing that was begun since; and on one server the indexes. In a cluster what is to go
-- from them is returned. ARGV: the thread's name, and how long to remember.

local threadname, DONE = ARGV[1], KEYS[8]
local ROWS, LABELS, THREADS = KEYS[9], KEYS[10], KEYS[11]
if redis.call('EXISTS', DONE) == 1 then
  return {}
end

local removed = {}
local function remove(key, kind, members)
  if key then
    many('ZREM', key, members)
  else
    for _, member in ipairs(members) do
      removed[#removed + 1] = kind .. member
    end
  end
end

local high = '+'
while true do
  local fields = redis.call('ZREVRANGEBYLEX', KEYS[I], high, '-', 'LIMIT', 0, AT_ONCE)
  if #fields == 0 then
    break
  end
  local rows, labels = {}, {}
  for i, row in ipairs(many('HMGET', KEYS[R], fields)) do
    local id_end = string.find(fields[i], '\0', 1, true)
    local member = string.sub(fields[i], 1, id_end) .. threadname .. string.sub(fields[i], id_end + 1)
    rows[i] = member
    local had = row and labels_of(row) or ''
    for j = 1, #had, 8 do
      labels[#labels + 1] = string.sub(had, j, j + 7) .. member
    end
  end
  remove(ROWS, 'r', rows)
  remove(LABELS, 'l', labels)
  high = '(' .. fields[#fields]
end
remove(THREADS, 't', {threadname})
redis.call('UNLINK', unpack(KEYS, 1, N))
redis.call('SET', DONE, '', 'PX', ARGV[2])
return removed
