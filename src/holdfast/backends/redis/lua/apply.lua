-- One change to one thread: all is looked at first, then all is made.
-- KEYS: the thread's, and on one server the indexes over all threads. In a cluster those are elsewhere: what the
-- change adds to them is there already, and what it takes from them is returned.
-- ARGV: token, first revision, milliseconds to live, the thread's text and its name in indexes, when it is too late,
-- whether it may begin a thread, and then the change, in the order in which it is read below.

local token, first_revision, ttl, text, threadname = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], ARGV[5]
local too_late, creates = tonumber(ARGV[6]), ARGV[7] == '1'
local ROWS, LABELS, THREADS, HAND = KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local TOKENS = 16

local at = 7
local function take()
  at = at + 1
  return ARGV[at]
end
local function number()
  return tonumber(take())
end

local function now()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function with_settled(row, settled)
  local labels, old, par, refs, meta, body = struct.unpack(ROW, row)
  local first = ROW_HEAD + labels
  return struct.pack(ROW, labels, #settled, par, refs, meta, body)
    .. string.sub(row, ROW_HEAD + 1, first) .. settled .. string.sub(row, first + old + 1)
end

local function settled_of(row)
  local labels, settled = struct.unpack('>I4I4', row)
  return string.sub(row, ROW_HEAD + labels + 1, ROW_HEAD + labels + settled)
end

-- What the change leans on.

local revision = redis.call('HGET', KEYS[T], 'rev')
local done = revision and redis.call('HGET', KEYS[T], 'done') or ''
for i = 1, #done, 8 do
  if string.sub(done, i, i + 7) == token then
    return {'made'} -- the answer was lost, or the request came twice
  end
end
if too_late > 0 and now() > too_late then
  return {'late'}
end

local wanted_revision, parent = take(), take()
if wanted_revision ~= '' and wanted_revision ~= revision then
  return {'revision'}
end
if parent ~= '' and not (revision and redis.call('HEXISTS', KEYS[R], parent) == 1) then
  return {'parent'}
end
for _ = 1, number() do
  local lean = take()
  if not revision or redis.call('HSTRLEN', KEYS[S], lean) == 0 then
    return {'segment'}
  end
end
local segments = number()
local first_segment = at
local rows = tonumber(ARGV[at + 2 * segments + 1])

-- Whether all of its segments and rows are there as they are here: then its answer was lost long ago.
local function is_there()
  for i = first_segment + 1, first_segment + 2 * segments, 2 do
    if redis.call('HGET', KEYS[S], ARGV[i]) ~= ARGV[i + 1] then
      return false
    end
  end
  for i = first_segment + 2 * segments + 2, first_segment + 2 * segments + 2 * rows, 2 do
    local stored = redis.call('HGET', KEYS[R], ARGV[i])
    if not stored or with_settled(stored, settled_of(ARGV[i + 1])) ~= ARGV[i + 1] then
      return false
    end
  end
  return rows > 0
end

if revision then
  for i = first_segment + 1, first_segment + 2 * segments, 2 do
    if redis.call('HEXISTS', KEYS[S], ARGV[i]) == 1 then
      return {is_there() and 'made' or 'segment'}
    end
  end
end
if not revision and not creates then
  return {'made'}
end

-- From here on nothing fails.

if not revision then
  redis.call('UNLINK', unpack(KEYS, 1, N))
  redis.call('HSET', KEYS[T], 'rev', first_revision, 'thread', text, 'app', ARGV[#ARGV])
end
for _ = 1, segments do
  redis.call('HSET', KEYS[S], take(), take())
end

local removed = {'made'}

local function member_of(field)
  local id_end = string.find(field, '\0', 1, true)
  return string.sub(field, 1, id_end) .. threadname .. string.sub(field, id_end + 1)
end

local function label(field, added, gone)
  local member = member_of(field)
  local still = {}
  for i = 1, #added, 8 do
    local one = string.sub(added, i, i + 7)
    still[one] = true
    if LABELS then
      redis.call('ZADD', LABELS, 0, one .. member)
    end
  end
  for i = 1, #gone, 8 do
    local one = string.sub(gone, i, i + 7)
    if not still[one] and LABELS then
      redis.call('ZREM', LABELS, one .. member)
    elseif not still[one] then
      removed[#removed + 1] = 'l' .. one .. member
    end
  end
end

local function list(field)
  local id_end = string.find(field, '\0', 1, true)
  local id, ns = string.sub(field, 1, id_end), string.sub(field, id_end + 1)
  local by_ns = redis.call('EXISTS', KEYS[N]) == 1
  if not by_ns then
    local first = redis.call('ZRANGE', KEYS[I], 0, 0)[1]
    if first and string.sub(first, string.find(first, '\0', 1, true) + 1) ~= ns then
      by_ns = true
      for _, other in ipairs(redis.call('ZRANGE', KEYS[I], 0, -1)) do
        local other_end = string.find(other, '\0', 1, true)
        redis.call('ZADD', KEYS[N], 0, string.sub(other, other_end + 1) .. string.sub(other, 1, other_end))
      end
    end
  end
  redis.call('ZADD', KEYS[I], 0, field)
  if by_ns then
    redis.call('ZADD', KEYS[N], 0, ns .. id)
  end
  if ROWS then
    redis.call('ZADD', ROWS, 0, member_of(field))
  end
end

local function unlist(field)
  local id_end = string.find(field, '\0', 1, true)
  redis.call('ZREM', KEYS[I], field)
  redis.call('ZREM', KEYS[N], string.sub(field, id_end + 1) .. string.sub(field, 1, id_end))
  if ROWS then
    redis.call('ZREM', ROWS, member_of(field))
  else
    removed[#removed + 1] = 'r' .. member_of(field)
  end
end

local function drop_writes(field)
  local directory = redis.call('HGET', KEYS[D], field)
  if directory then
    many('HDEL', KEYS[W], (fields_of_writes(field, directory)))
    redis.call('HDEL', KEYS[D], field)
  end
end

for _ = 1, number() do
  local field, row = take(), take()
  local old = redis.call('HGET', KEYS[R], field)
  if old and settled_of(row) == '' then
    row = with_settled(row, settled_of(old))
  end
  redis.call('HSET', KEYS[R], field, row)
  if not old then
    list(field)
  end
  label(field, labels_of(row), old and labels_of(old) or '')
end

-- Writes: all parts of one are of one attempt.
local fields_written = {}
for _ = 1, number() do
  local field, name, overwrites, parts = take(), take(), take() == '1', number()
  fields_written[#fields_written + 1] = field
  local directory = redis.call('HGET', KEYS[D], field) or ''
  local others, before = {}, nil
  each_write(directory, function(other, other_parts)
    if other == name then
      before = other_parts
    else
      others[#others + 1] = u32(#other) .. u32(other_parts) .. other
    end
  end)
  if before and not overwrites then
    at = at + parts
  else
    for part = parts, (before or 0) - 1 do
      redis.call('HDEL', KEYS[W], field .. u32(part) .. name)
    end
    for part = 0, parts - 1 do
      redis.call('HSET', KEYS[W], field .. u32(part) .. name, take())
    end
    redis.call('HSET', KEYS[D], field, table.concat(others) .. u32(#name) .. u32(parts) .. name)
  end
end

for _ = 1, number() do
  local field, settled = take(), take()
  local row = redis.call('HGET', KEYS[R], field)
  if row then
    redis.call('HSET', KEYS[R], field, with_settled(row, settled))
  end
end

for _ = 1, number() do
  local field = take()
  local row = redis.call('HGET', KEYS[R], field)
  if row then
    redis.call('HDEL', KEYS[R], field)
    unlist(field)
    label(field, '', labels_of(row))
  end
  drop_writes(field)
end

if take() == '1' then
  local keep = {}
  for _ = 1, number() do
    keep[take()] = number()
  end
  local doomed, closed = {}, {}
  for _, field in ipairs(redis.call('HKEYS', KEYS[S])) do
    local log, seq = string.match(field, '^(.*):(%d+)$')
    local last = keep[log]
    if not last or tonumber(seq) > last + 1 then
      doomed[#doomed + 1] = field
    end
    if last and tonumber(seq) > last then
      closed[log] = last + 1 -- by a segment that nothing can lean on
    end
  end
  many('HDEL', KEYS[S], doomed)
  for log, seq in pairs(closed) do
    redis.call('HSET', KEYS[S], log .. ':' .. seq, '')
  end
  local sweep = take()
  for _, field in ipairs(redis.call('HKEYS', KEYS[D])) do
    local id = string.sub(field, 1, (string.find(field, '\0', 1, true)))
    if is_before(id, sweep) and redis.call('HEXISTS', KEYS[R], field) == 0 then
      drop_writes(field)
    end
  end
end

-- Rewrites compare and swap, each by itself.
for _ = 1, number() do
  local kind, field, old, new = take(), take(), take(), take()
  if kind == 's' then
    if redis.call('HGET', KEYS[S], field) == old then
      redis.call('HSET', KEYS[S], field, new)
    end
  elseif kind == 'w' then
    local stored = redis.call('HGET', KEYS[W], field)
    if stored then
      local channel, path = struct.unpack('>I4I4', stored)
      local start = 8 + channel + path
      if string.sub(stored, start + 1) == old then
        redis.call('HSET', KEYS[W], field, string.sub(stored, 1, start) .. new)
      end
    end
  else
    local old_meta, labels, new_meta, new_body = number(), take(), number(), number()
    local stored = redis.call('HGET', KEYS[R], field)
    if stored then
      local had, settled, par, refs, meta, body = struct.unpack(ROW, stored)
      if string.sub(stored, #stored - meta - body + 1) == old and meta == old_meta then
        local kept = string.sub(stored, ROW_HEAD + had + 1, #stored - meta - body)
        local before = labels_of(stored)
        local head = struct.pack(ROW, #labels, settled, par, refs, new_meta, new_body)
        redis.call('HSET', KEYS[R], field, head .. labels .. kept .. new)
        label(field, labels, before)
      end
    end
  end
end

local moves = take() == '1'
for _, field in ipairs(fields_written) do
  if moves then
    break
  end
  local id_end = string.find(field, '\0', 1, true)
  local next_id, ns = string.sub(field, 1, id_end - 1) .. '\1', string.sub(field, id_end + 1)
  if redis.call('EXISTS', KEYS[N]) == 1 then
    moves = #redis.call('ZRANGEBYLEX', KEYS[N], '(' .. ns .. next_id, '(' .. ns .. '\255', 'LIMIT', 0, 1) > 0
  else
    local later = redis.call('ZRANGEBYLEX', KEYS[I], '(' .. next_id, '+', 'LIMIT', 0, 1)[1]
    moves = later and string.sub(later, string.find(later, '\0', 1, true) + 1) == ns
  end
end
if moves then
  redis.call('HINCRBY', KEYS[T], 'rev', 1)
end
redis.call('HSET', KEYS[T], 'done', string.sub(done .. token, -8 * TOKENS))

if redis.call('EXISTS', KEYS[R]) == 1 then
  if THREADS then
    redis.call('ZADD', THREADS, 0, threadname)
  end
elseif THREADS then
  redis.call('ZREM', THREADS, threadname)
else
  removed[#removed + 1] = 't' .. threadname
end

-- All keys of a thread expire at one moment, or none does.
if ttl > 0 then
  local moment = string.format('%.0f', now() + ttl)
  for i = 1, N do
    redis.call('PEXPIREAT', KEYS[i], moment)
  end
elseif revision and redis.call('PTTL', KEYS[T]) >= 0 then
  for i = 1, N do
    redis.call('PERSIST', KEYS[i])
  end
end

-- Threads that expire leave entries in the indexes. A hand goes round them, faster than they grow.
if ttl > 0 and ROWS then
  local app = ARGV[#ARGV]
  local function is_gone(member, prefix)
    local field, name = take_apart(string.sub(member, #prefix + 1))
    local keys = keys_of(app, name)
    local row = redis.call('EXISTS', keys[T]) == 1 and redis.call('HGET', keys[R], field)
    return not row or (prefix ~= '' and not has_label(row, prefix))
  end
  local function go_round(key, steps, gone)
    local last = redis.call('HGET', HAND, key)
    local members = redis.call('ZRANGEBYLEX', key, last and '(' .. last or '-', '+', 'LIMIT', 0, steps)
    for _, member in ipairs(members) do
      if gone(member) then
        redis.call('ZREM', key, member)
      end
    end
    if #members < steps then
      redis.call('HDEL', HAND, key)
    else
      redis.call('HSET', HAND, key, members[#members])
    end
  end
  go_round(ROWS, 4, function(member)
    return is_gone(member, '')
  end)
  go_round(LABELS, 16, function(member)
    return is_gone(member, string.sub(member, 1, 8))
  end)
  go_round(THREADS, 2, function(member)
    return redis.call('EXISTS', keys_of(app, member)[R]) == 0
  end)
end
return removed
