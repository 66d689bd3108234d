-- Makes the caller the writer of what is seen in a shard: whoever wrote before is
-- fenced off. A shard without an identity, or one to be renewed, gets the caller's.
--
-- KEYS  meta
-- ARGV  1 new identity  2 generation to be above  3 '1' to renew the identity  4 format
local have = redis.call('HMGET', KEYS[1], 'identity', 'generation', 'position')
local identity = have[1]
if not identity or ARGV[3] == '1' then
  identity = ARGV[1]
  -- What was decided before isn't all in here.
  local now = redis.call('TIME')
  redis.call('HSET', KEYS[1], 'began', string.format('%.0f', now[1] * 1000 + math.floor(now[2] / 1000)))
end
local generation = math.max(tonumber(have[2] or '0'), tonumber(ARGV[2])) + 1
generation = string.format('%.0f', generation)
redis.call('HSET', KEYS[1], 'format', ARGV[4], 'identity', identity, 'generation', generation)
return {'applied', '0', identity, generation, have[3] or '0'}
