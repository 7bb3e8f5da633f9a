-- Members of the indexes over all threads, the newest id first; whoever reads them looks for the rows itself.
-- KEYS: the indexes. ARGV: where, bounds, how many. The first byte of the reply says whether there may be more.

local members, _, more = next_members(sources_for(read_where(ARGV[1]), KEYS[1], KEYS[2]), ARGV[2], ARGV[3], tonumber(ARGV[4]))
local out = {more and '1' or '0'}
for _, member in ipairs(members) do
  put(out, member)
end
return table.concat(out)
