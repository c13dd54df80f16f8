-- Commits one batch to one shard of one projection: every write and the new offset, or nothing.
--
-- KEYS[1]   the shard's meta HASH
-- ARGV[1]   epoch the projector holds
-- ARGV[2]   offset it expects
-- ARGV[3]   new offset
-- ARGV[4]   checksum of the journal record at the new offset
-- ARGV[5]   as of, unix ms: everything received before it is applied
-- ARGV[6…]  the writes: count of words, then the words of the command; their keys carry the hash tag of KEYS[1]
--
-- Replies   OK
--           EPOCH …   another projector has claimed the shard; nothing changed
--           OFFSET …  the shard holds another offset; nothing changed
--           DIRTY …   a write failed now or in an earlier commit: the shard is half written and must be rebuilt
--           Redis's own error, when it takes no writes (OOM, READONLY, MISCONF): nothing changed
--
-- Offsets are compared as strings: a Lua number holds 53 bits.

-- guard begin
local held = redis.call('HMGET', KEYS[1], 'epoch', 'offset', 'dirty')
if held[3] then return redis.error_reply('DIRTY ' .. held[3]) end
if held[1] ~= ARGV[1] then return redis.error_reply('EPOCH is ' .. tostring(held[1])) end
if held[2] ~= ARGV[2] then return redis.error_reply('OFFSET is ' .. tostring(held[2])) end
-- guard end

local n = #ARGV
if n >= 6 then
  -- The first write of a script is the one that Redis refuses under memory pressure; those after it go through. So this one
  -- decides for all.
  local first = redis.pcall('HSET', KEYS[1], 'dirty', 'commit of ' .. ARGV[3] .. ' did not end')
  if type(first) == 'table' and first.err then return first end
  local i = 6
  while i <= n do
    local words = tonumber(ARGV[i])
    local reply = redis.pcall(unpack(ARGV, i + 1, i + words))
    if type(reply) == 'table' and reply.err then
      local why = ARGV[i + 1] .. ' ' .. ARGV[i + 2] .. ': ' .. reply.err
      redis.call('HSET', KEYS[1], 'dirty', why)
      return redis.error_reply('DIRTY ' .. why)
    end
    i = i + words + 1
  end
end
redis.call('HSET', KEYS[1], 'offset', ARGV[3], 'sum', ARGV[4], 'asof', ARGV[5])
redis.call('HDEL', KEYS[1], 'dirty')
return redis.status_reply('OK')
