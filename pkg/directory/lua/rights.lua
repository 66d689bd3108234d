-- Tries each command of the directory on a key that isn't there, or that the command
-- before made; returns the names of those that the user may not run.
-- KEYS: a key of the shard, and another one in the same slot.
local key, other = KEYS[1], KEYS[2]
local refused = {}

local function try(...)
  local answer = redis.pcall(...)
  if type(answer) == 'table' and answer.err and (string.find(answer.err, 'NOPERM', 1, true) or string.find(answer.err, 'user executing the script', 1, true)) then
    refused[#refused + 1] = (select(1, ...))
  end
end

try('TIME')
try('EXISTS', key)
try('HSET', key, 'field', 'value')
try('HGET', key, 'field')
try('HMGET', key, 'field')
try('HGETALL', key)
try('HEXISTS', key, 'field')
try('RENAME', key, other)
try('HDEL', other, 'field')
try('SADD', key, 'member')
try('SMEMBERS', key)
try('EXPIRE', key, 1)
try('SREM', key, 'member')
try('ZADD', key, 1, 'member')
try('ZRANGE', key, 0, -1)
try('ZREM', key, 'member')
try('LPUSH', key, 'element')
try('LRANGE', key, 0, -1)
try('LTRIM', key, 1, 0)
try('XADD', key, '*', 'field', 'value')
try('XINFO', 'STREAM', key)
try('XRANGE', key, '-', '+', 'COUNT', 1)
try('XREVRANGE', key, '+', '-', 'COUNT', 1)
try('XTRIM', key, 'MAXLEN', 0)
try('DEL', key, other)
return refused
