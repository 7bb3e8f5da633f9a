-- Doubts that were cleared up, unless they began anew meanwhile. KEYS: the indexes.
-- ARGV: for each entry since when, the entry, and whether it leads somewhere.

for i = 1, #ARGV, 3 do
  local since, entry, leads = ARGV[i], ARGV[i + 1], ARGV[i + 2] == '1'
  if redis.call('ZSCORE', KEYS[5], entry) == since then
    redis.call('ZREM', KEYS[5], entry)
    if not leads then
      local kind = string.sub(entry, 1, 1)
      redis.call('ZREM', kind == 'r' and KEYS[1] or kind == 'l' and KEYS[2] or KEYS[3], string.sub(entry, 2))
    end
  end
end
