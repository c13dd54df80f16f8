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
--
-- begun counts commits, ended is its value at the end of the last one. They differ when a commit stopped half way, and also when Redis has
-- replayed a torn one: an append-only file that was cut inside a transaction keeps the open MULTI, and at the load after the next its
-- commands run together with those of the transaction written behind it (seen with Redis 7.0.15).

-- guard begin
local held = redis.call('HMGET', KEYS[1], 'epoch', 'offset', 'dirty', 'begun', 'ended')
if held[3] then return redis.error_reply('DIRTY ' .. held[3]) end
if held[4] ~= held[5] then return redis.error_reply('DIRTY a torn commit was replayed') end
if held[1] ~= ARGV[1] then return redis.error_reply('EPOCH is ' .. tostring(held[1])) end
if held[2] ~= ARGV[2] then return redis.error_reply('OFFSET is ' .. tostring(held[2])) end
-- guard end

-- The first write of a script is the one that Redis refuses under memory pressure; those after it go through. So this one decides for
-- all.
local begun = redis.pcall('HINCRBY', KEYS[1], 'begun', 1)
if type(begun) == 'table' then return begun end
local i, n = 6, #ARGV
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
redis.call('HSET', KEYS[1], 'offset', ARGV[3], 'sum', ARGV[4], 'asof', ARGV[5], 'ended', string.format('%.0f', begun))
return redis.status_reply('OK')
