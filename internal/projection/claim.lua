-- Claims one shard of one projection for a new epoch: commits of every earlier epoch are refused from here on.
--
-- KEYS[1]  the shard's meta HASH
-- ARGV[1]  the new epoch, never used before
-- ARGV[2]  identity of the journal
-- ARGV[3]  offset of a shard that has none yet
--
-- Reply    {claimed (1 or 0), offset, checksum of the record there, journal, dirty}; not claimed when the shard is dirty or was
--          written from another journal; "" for what is absent
local m = redis.call('HMGET', KEYS[1], 'offset', 'sum', 'journal', 'dirty', 'begun', 'ended')
local offset, sum, journal, dirty = m[1] or ARGV[3], m[2] or '', m[3] or ARGV[2], m[4] or ''
if dirty == '' and m[5] ~= m[6] then dirty = 'a torn commit was replayed' end
if dirty ~= '' or journal ~= ARGV[2] then return {0, offset, sum, journal, dirty} end
redis.call('HSET', KEYS[1], 'epoch', ARGV[1], 'offset', offset, 'journal', journal)
return {1, offset, sum, journal, dirty}
