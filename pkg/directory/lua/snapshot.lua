-- Copies a shard's entries as they are at the stream's last ID, and trims the
-- stream: only what is behind the snapshot, and of that only what is older than
-- is to be kept for those who follow. The copy is made beside the present
-- snapshot and takes its place at the end.
--
-- KEYS  meta, devices, snapshot, snapshot in the making, transitions
-- ARGV  1 tag  2 time in Unix milliseconds before which transitions may go
local meta, devices, snapshot, making, transitions = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
if redis.call('EXISTS', transitions) == 0 then return {'0-0', 0} end
local info = redis.call('XINFO', 'STREAM', transitions)
local at = '0-0'
for i = 1, #info, 2 do
  if info[i] == 'last-generated-id' then at = info[i + 1] end
end
redis.call('DEL', making)
local all = redis.call('ZRANGE', devices, 0, -1)
for _, device in ipairs(all) do
  local have = redis.call('HMGET', ARGV[1] .. 'device:' .. device, 'seen', 'seen:revision', 'case', 'case:revision')
  redis.call('HSET', making, device, cjson.encode({
    seen = have[1] or '', seenRevision = have[2] or '0', case = have[3] or '', caseRevision = have[4] or '0'}))
end
if #all > 0 then
  redis.call('RENAME', making, snapshot)
else
  redis.call('DEL', snapshot)
end
local trim = at
if tonumber(ARGV[2]) <= tonumber(string.match(at, '^%d+')) then trim = ARGV[2] .. '-0' end
redis.call('HSET', meta, 'snapshot', at)
local gone = redis.call('XTRIM', transitions, 'MINID', trim)
if gone > 0 then redis.call('HSET', meta, 'trimmed', trim) end
return {at, gone}
