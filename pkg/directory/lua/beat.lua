-- Says that the writer of a shard is alive, and answers what the shard is now. A
-- beat that is older than one that was acknowledged, or a position below one that
-- was seen, is a shard restored from older data.
--
-- KEYS  meta
-- ARGV  1 identity  2 generation  3 position seen  4 beat acknowledged
--       5 this beat, in Unix milliseconds  6 what the writer can't see
local have = redis.call('HMGET', KEYS[1], 'identity', 'generation', 'position', 'beat')
local status = 'lost'
if have[1] == ARGV[1] then
  if tonumber(have[2]) > tonumber(ARGV[2]) then
    status = 'fenced'
  elseif tonumber(have[2]) == tonumber(ARGV[2]) and tonumber(have[3] or '0') >= tonumber(ARGV[3])
    and tonumber(have[4] or '0') >= tonumber(ARGV[4]) then
    redis.call('HSET', KEYS[1], 'beat', ARGV[5], 'blind', ARGV[6])
    status = 'applied'
  end
end
return {status, '0', have[1] or '', have[2] or '0', have[3] or '0'}
