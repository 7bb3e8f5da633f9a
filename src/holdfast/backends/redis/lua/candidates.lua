-- Walks along indexes over all threads, the newest id first.

-- Where to look for rows that match: the index of rows, or those labels that the fewest rows have.
local function sources_for(sets, rows_key, labels_key)
  local best, fewest = {{key = rows_key, prefix = ''}}, nil
  for _, set in ipairs(sets) do
    local sources, entries = {}, 0
    for label in pairs(set) do
      sources[#sources + 1] = {key = labels_key, prefix = label}
      entries = entries + redis.call('ZLEXCOUNT', labels_key, '[' .. label, '(' .. label .. '\255')
    end
    if not fewest or entries < fewest then
      best, fewest = sources, entries
    end
  end
  return best
end

-- The next members below `high`, and whether there may be more. `is_from` tells the source of each.
local function next_members(sources, high, low, size)
  local found, is_from, more = {}, {}, false
  for _, source in ipairs(sources) do
    local top = '(' .. source.prefix .. high
    local part = redis.call('ZREVRANGEBYLEX', source.key, top, '[' .. source.prefix .. low, 'LIMIT', 0, size)
    more = more or #part == size
    for _, member in ipairs(part) do
      local name = string.sub(member, #source.prefix + 1)
      if not is_from[name] then
        found[#found + 1] = name
      end
      is_from[name] = source
    end
  end
  if #sources > 1 then
    table.sort(found, function(one, other)
      return is_before(other, one)
    end)
  end
  local first = {}
  for i = 1, math.min(size, #found) do
    first[i] = found[i]
  end
  return first, is_from, more or #found > size
end
