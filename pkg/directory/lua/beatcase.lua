-- Says that a worker is alive and writes the cases of a shard. A shard that was lost
-- meanwhile is left for its writer to claim.
--
-- KEYS  meta
-- ARGV  1 identity  2 this beat, in Unix milliseconds
local have = redis.call('HGET', KEYS[1], 'identity')
if have ~= ARGV[1] then
  return {'lost', '0', have or '', '0', '0'}
end
redis.call('HSET', KEYS[1], 'beat:case', ARGV[2])
return {'applied', '0', have, '0', '0'}
