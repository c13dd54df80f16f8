-- Keeps the projector's lock.
--
-- KEYS[1]  the lock
-- ARGV[1]  owner token
-- ARGV[2]  TTL in ms; 0 releases the lock
--
-- Reply    1 kept or released, 0 held by somebody else or gone
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '0' then return redis.call('DEL', KEYS[1]) end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
