-- Stands before every script. Replies are one string each: numbers of four bytes, and texts behind their lengths.
-- A client then takes one value apart instead of reading thousands.

local AT_ONCE = 1000 -- arguments of one call; Lua's stack has room for 8,000

local function u32(number)
  return struct.pack('>I4', number)
end

local function put(out, text)
  out[#out + 1] = u32(#text)
  out[#out + 1] = text
end

-- Calls a command with any number of arguments; what it returns for each, in order.
local function many(command, key, arguments)
  local found = {}
  for first = 1, #arguments, AT_ONCE do
    local last = math.min(first + AT_ONCE - 1, #arguments)
    local part = redis.call(command, key, unpack(arguments, first, last))
    if type(part) == 'table' then
      for i = 1, #part do
        found[first + i - 1] = part[i]
      end
    end
  end
  return found
end

local function keys_of(app, threadname)
  local start = 'holdfast:{' .. string.sub(redis.sha1hex(app .. threadname), 1, 32) .. '}:'
  local keys = {}
  for i, what in ipairs({'t', 'r', 's', 'w', 'd', 'i', 'n'}) do
    keys[i] = start .. what
  end
  return keys
end

local T, R, S, W, D, I, N = 1, 2, 3, 4, 5, 6, 7

-- A row is six lengths, and behind them its labels, what is settled, parent, refs, meta and body.
local ROW = '>I4I4I4I4I4I4'
local ROW_HEAD = 24

local function labels_of(row)
  local size = struct.unpack('>I4', row)
  return string.sub(row, ROW_HEAD + 1, ROW_HEAD + size)
end

local function refs_of(row)
  local labels, settled, parent, refs = struct.unpack(ROW, row)
  local first = ROW_HEAD + labels + settled + parent
  local is_read, found = pcall(cmsgpack.unpack, string.sub(row, first + 1, first + refs))
  return is_read and type(found) == 'table' and found or {}
end

local function without_body(row)
  local _, _, _, _, _, body = struct.unpack(ROW, row)
  return string.sub(row, 1, #row - body)
end

local function has_label(row, label)
  local labels = labels_of(row)
  for i = 1, #labels, 8 do
    if string.sub(labels, i, i + 7) == label then
      return true
    end
  end
  return false
end

-- Sets of labels, of each of which a row must have one: for each set how many, and the labels.
local function read_where(packed)
  local sets, at = {}, 1
  while at <= #packed do
    local size = struct.unpack('>I4', packed, at)
    local set = {}
    for i = 0, size - 1 do
      set[string.sub(packed, at + 4 + 8 * i, at + 11 + 8 * i)] = true
    end
    sets[#sets + 1] = set
    at = at + 4 + 8 * size
  end
  return sets
end

local function matches(row, sets)
  if #sets == 0 then
    return true
  end
  local labels = labels_of(row)
  for _, set in ipairs(sets) do
    local is_there = false
    for i = 1, #labels, 8 do
      if set[string.sub(labels, i, i + 7)] then
        is_there = true
        break
      end
    end
    if not is_there then
      return false
    end
  end
  return true
end

-- The writes of a row by their names: four bytes of the index, and the task. Each is in so many parts.
local function each_write(directory, act)
  local at = 1
  while at <= #directory do
    local size, parts = struct.unpack('>I4I4', directory, at)
    act(string.sub(directory, at + 8, at + 7 + size), parts)
    at = at + 8 + size
  end
end

local function fields_of_writes(field, directory)
  local names = {}
  each_write(directory, function(name, parts)
    for part = 0, parts - 1 do
      names[#names + 1] = u32(part) .. name
    end
  end)
  local fields = {}
  for i, name in ipairs(names) do
    fields[i] = field .. name
  end
  return fields, names
end

local function put_writes(out, keys, fields, wanted)
  local directories = many('HMGET', keys[D], fields)
  for i, field in ipairs(fields) do
    local written, count = {}, 0
    if directories[i] then
      local named, names = fields_of_writes(field, directories[i])
      for j, value in ipairs(many('HMGET', keys[W], named)) do
        local channel = value and string.sub(value, 9, 8 + struct.unpack('>I4', value))
        if value and (not wanted or wanted[channel]) then
          put(written, names[j])
          put(written, value)
          count = count + 1
        end
      end
    end
    out[#out + 1] = u32(count)
    out[#out + 1] = table.concat(written)
  end
end

local MISSING = 4294967295

local function put_logs(out, keys, last)
  local logs = {}
  for log in pairs(last) do
    logs[#logs + 1] = log
  end
  out[#out + 1] = u32(#logs)
  for _, log in ipairs(logs) do
    local fields = {}
    for seq = 0, last[log] do
      fields[seq + 1] = log .. ':' .. seq
    end
    put(out, log)
    out[#out + 1] = u32(#fields)
    for _, data in ipairs(many('HMGET', keys[S], fields)) do
      if data then
        put(out, data)
      else
        out[#out + 1] = u32(MISSING)
      end
    end
  end
end

-- Rows of one thread, and what they need.
local function put_thread(out, keys, threadname, revision, fields, rows, heads)
  put(out, threadname)
  put(out, revision)
  out[#out + 1] = u32(#fields)
  local last = {}
  for i, field in ipairs(fields) do
    put(out, field)
    put(out, heads and without_body(rows[i]) or rows[i])
    if not heads then
      for _, ref in pairs(refs_of(rows[i])) do
        if type(ref) == 'table' and ref[1] ~= '' and ref[2] >= (last[ref[1]] or 0) then
          last[ref[1]] = ref[2]
        end
      end
    end
  end
  if not heads then
    put_logs(out, keys, last)
    put_writes(out, keys, fields)
  end
end

-- A member of an index over all threads: the field of its row, and its thread's name.
local function take_apart(member)
  local id_end = string.find(member, '\0', 1, true)
  local thread_end = string.find(member, '\255', id_end + 1, true)
  local field = string.sub(member, 1, id_end) .. string.sub(member, thread_end + 1)
  return field, string.sub(member, id_end + 1, thread_end)
end

-- Lua compares strings as the server's locale does; here bytes count.
local function is_before(one, other)
  for i = 1, math.min(#one, #other) do
    local a, b = string.byte(one, i), string.byte(other, i)
    if a ~= b then
      return a < b
    end
  end
  return #one < #other
end
