-- Writes or removes one field of one device's entry. What can be refused comes
-- first, because a script that fails half way doesn't roll back: fence, duplicate,
-- expected revision, then XADD (the one that a full memory refuses), then the
-- entry and its indexes. The name of an index set is built here from the shard's
-- tag: it is in the slot of the declared keys.
--
-- KEYS  meta, entry, devices, transitions
-- ARGV  1 tag  2 field  3 device  4 operation  5 expected revision
--       6 identity  7 generation or epoch  8 0 or attempt
--       9 value, empty to remove  10 the last value of a field that is removed
--       11… the index sets to be in
local tag, field, device, operation, expected = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local identity, fence, minor, value, last = ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10]
local meta, entry, devices, transitions = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

local shard = redis.call('HMGET', meta, 'identity', 'generation', 'position')
local have = redis.call('HMGET', entry, field .. ':revision', field .. ':operation', field .. ':in', 'case:epoch', 'case:attempt')
local revision = have[1] or '0'
local position = shard[3] or '0'

local function answer(status)
  return {status, revision, shard[1] or '', shard[2] or '0', position}
end

if field == 'seen' then
  if shard[1] ~= identity or tonumber(shard[2]) < tonumber(fence) then return answer('lost') end
  if tonumber(shard[2]) > tonumber(fence) then return answer('fenced') end
else
  local epoch, attempt = tonumber(have[4] or '0'), tonumber(have[5] or '0')
  if tonumber(fence) < epoch or (tonumber(fence) == epoch and tonumber(minor) < attempt) then return answer('fenced') end
end
if have[2] == operation then return answer('duplicate') end
if revision ~= expected then return answer('conflict') end

position = string.format('%.0f', tonumber(position) + 1)
revision = position
local record = {'device', device, 'field', field, 'revision', revision, 'value', value}
if last ~= '' then
  record[#record + 1] = 'last'
  record[#record + 1] = last
end
local id = redis.call('XADD', transitions, '*', unpack(record))
redis.call('HSET', meta, 'position', position, 'last', id)

for set in string.gmatch(have[3] or '', '[^\n]+') do
  redis.call('SREM', tag .. set, device)
end
if value == '' then
  redis.call('HDEL', entry, field, field .. ':in')
  redis.call('HSET', entry, field .. ':revision', revision, field .. ':operation', operation)
  if redis.call('HEXISTS', entry, 'seen') == 0 and redis.call('HEXISTS', entry, 'case') == 0 then
    redis.call('DEL', entry)
    redis.call('ZREM', devices, device)
  end
  return answer('applied')
end
local sets = {}
for i = 11, #ARGV do
  redis.call('SADD', tag .. ARGV[i], device)
  sets[#sets + 1] = ARGV[i]
end
redis.call('HSET', entry, field, value, field .. ':revision', revision, field .. ':operation', operation,
  field .. ':in', table.concat(sets, '\n'))
if field == 'case' then
  redis.call('HSET', entry, 'case:epoch', fence, 'case:attempt', minor)
end
redis.call('ZADD', devices, 0, device)
return answer('applied')
