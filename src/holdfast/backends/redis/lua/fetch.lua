-- Segments of some logs, writes to some channels on some rows, and the revision.
-- KEYS: the thread's. ARGV: how many logs, each with its last number; how many rows, their fields; channels.

local revision = redis.call('HGET', KEYS[T], 'rev')
if not revision then
  return ''
end
local at = 1
local last = {}
for _ = 1, tonumber(ARGV[1]) do
  last[ARGV[at + 1]] = tonumber(ARGV[at + 2])
  at = at + 2
end
local fields, wanted = {}, {}
for i = 1, tonumber(ARGV[at + 1]) do
  fields[i] = ARGV[at + 1 + i]
end
for i = at + 2 + #fields, #ARGV do
  wanted[ARGV[i]] = true
end
local out = {}
put(out, revision)
put_logs(out, KEYS, last)
put_writes(out, KEYS, fields, wanted)
return table.concat(out)
