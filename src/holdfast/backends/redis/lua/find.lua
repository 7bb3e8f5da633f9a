-- Rows of one thread with all that they need, as of one moment.
-- KEYS: the thread's. ARGV: its name, heads, limit, where, how to look, and then
--   'these': fields
--   'range': bounds of the index by id; with a namespace, its name and bounds of the index by namespace

local threadname, heads, limit, how = ARGV[1], ARGV[2] == '1', tonumber(ARGV[3]), ARGV[5]
local sets = read_where(ARGV[4])
local revision = redis.call('HGET', KEYS[T], 'rev')
if not revision then
  return ''
end

local fields, rows = {}, {}

local function keep(some)
  for i, row in ipairs(many('HMGET', KEYS[R], some)) do
    if row and matches(row, sets) and #fields < limit then
      fields[#fields + 1] = some[i]
      rows[#rows + 1] = row
    end
  end
end

if how == 'these' then
  local some = {}
  for i = 6, #ARGV do
    some[#some + 1] = ARGV[i]
  end
  keep(some)
else
  local index, high, low, ns = KEYS[I], ARGV[6], ARGV[7], ARGV[8]
  local by_ns = ns and redis.call('EXISTS', KEYS[N]) == 1
  if by_ns then
    index, high, low = KEYS[N], ARGV[9], ARGV[10]
  elseif ns then
    -- The index by namespace is made for the second of them: as long as there is one, all rows are of that.
    local first = redis.call('ZRANGE', index, 0, 0)[1]
    if not first or string.sub(first, string.find(first, '\0', 1, true) + 1) ~= ns then
      return ''
    end
  end
  local size = #sets == 0 and math.min(limit, AT_ONCE) or AT_ONCE
  while #fields < limit do
    local some = redis.call('ZREVRANGEBYLEX', index, high, low, 'LIMIT', 0, size)
    if #some == 0 then
      break
    end
    high = '(' .. some[#some]
    if by_ns then
      for i, member in ipairs(some) do
        some[i] = string.sub(member, #ns + 1) .. ns
      end
    end
    keep(some)
    if #some < size then
      break
    end
  end
end

if #fields == 0 then
  return ''
end
local out = {}
put_thread(out, KEYS, threadname, revision, fields, rows, heads)
return table.concat(out)
