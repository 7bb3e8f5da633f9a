-- Rows over all threads, the newest id first, with all that they need; on one server, where all keys are at hand.
-- KEYS: the indexes. ARGV: the application, heads, limit, where, bounds of names, a namespace or '*', and whether
-- entries that lead nowhere are to go: those of threads that expired.

local app, heads, limit, sets = ARGV[1], ARGV[2] == '1', tonumber(ARGV[3]), read_where(ARGV[4])
local high, low, ns, sweeps = ARGV[5], ARGV[6], ARGV[7], ARGV[8] == '1'
local sources = sources_for(sets, KEYS[1], KEYS[2])
local threads, order, found = {}, {}, 0

local function thread_of(threadname)
  local thread = threads[threadname]
  if not thread then
    local keys = keys_of(app, threadname)
    thread = {keys = keys, revision = redis.call('HGET', keys[T], 'rev'), fields = {}, rows = {}}
    threads[threadname] = thread
    order[#order + 1] = threadname
  end
  return thread
end

while found < limit do
  local members, is_from, more = next_members(sources, high, low, math.min(limit, AT_ONCE))
  for _, member in ipairs(members) do
    local field, threadname = take_apart(member)
    local thread = thread_of(threadname)
    local row = thread.revision and redis.call('HGET', thread.keys[R], field)
    local source = is_from[member]
    if not row or (source.prefix ~= '' and not has_label(row, source.prefix)) then
      if sweeps then
        redis.pcall('ZREM', source.key, source.prefix .. member)
      end
    elseif found < limit and (ns == '*' or string.sub(field, -#ns - 1) == '\0' .. ns) and matches(row, sets) then
      thread.fields[#thread.fields + 1] = field
      thread.rows[#thread.rows + 1] = row
      found = found + 1
    end
  end
  if not more then
    break
  end
  high = members[#members]
end

local out = {}
for _, threadname in ipairs(order) do
  local thread = threads[threadname]
  if #thread.fields > 0 then
    put_thread(out, thread.keys, threadname, thread.revision, thread.fields, thread.rows, heads)
  end
end
return table.concat(out)
