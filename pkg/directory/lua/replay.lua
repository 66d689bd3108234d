-- Reads a shard's snapshot and all transitions after it, at one instant.
--
-- KEYS  meta, snapshot, transitions
local at = redis.call('HGET', KEYS[1], 'snapshot') or '0-0'
return {at, redis.call('HGETALL', KEYS[2]), redis.call('XRANGE', KEYS[3], '(' .. at, '+')}
