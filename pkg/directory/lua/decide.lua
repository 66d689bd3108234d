-- Puts a decision into a shard's transitions, once: an announcement that was not
-- acknowledged comes again, within minutes, and of a device at most as many
-- decisions as wait at once. A decision is a fact and not a level: nothing fences
-- it, and the entry stays as it is. The node is the entry's, as it is now.
--
-- KEYS  meta, entry, transitions, the device's latest decisions
-- ARGV  1 device  2 the decision's ID  3 value  4 how many IDs to keep  5 for how many seconds
local meta, entry, transitions, latest = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local shard = redis.call('HMGET', meta, 'identity', 'generation', 'position')
local position = shard[3] or '0'

local function answer(status)
  return {status, position, shard[1] or '', shard[2] or '0', position}
end

for _, id in ipairs(redis.call('LRANGE', latest, 0, -1)) do
  if id == ARGV[2] then return answer('duplicate') end
end
local node = ''
for _, text in ipairs({redis.call('HGET', entry, 'seen') or '', redis.call('HGET', entry, 'case') or ''}) do
  local ok, value = pcall(cjson.decode, text)
  if node == '' and ok and type(value) == 'table' and type(value.node) == 'string' then node = value.node end
end
position = string.format('%.0f', tonumber(position) + 1)
local id = redis.call('XADD', transitions, '*', 'device', ARGV[1], 'field', 'decision', 'revision', position,
  'value', ARGV[3], 'node', node)
redis.call('HSET', meta, 'position', position, 'last', id)
redis.call('LPUSH', latest, ARGV[2])
redis.call('LTRIM', latest, 0, tonumber(ARGV[4]) - 1)
redis.call('EXPIRE', latest, ARGV[5])
return answer('applied')
