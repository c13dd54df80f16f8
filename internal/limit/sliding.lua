-- Takes one call from a sliding window, if there is room: fewer than limit calls passed in (now - window, now].
--
-- KEYS[1]  the window's LIST: time in unix ms and id word of each call that passed, oldest first
-- ARGV[1]  now, unix ms
-- ARGV[2]  window in ms
-- ARGV[3]  limit, 1 to 10000
-- ARGV[4]  id word, 8 bytes that are no number; 0 = the call has no id
--
-- Reply    {verdict, used, wait, reset}
--            verdict  1 passed, 2 passed before with this id: nothing changed, 0 refused: nothing changed
--            used     calls in the window, this one included
--            wait     when refused: ms until a call passes; else 0
--            reset    ms until the window is empty
--          DAMAGED …  the list is none of ours; nothing changed
--          Redis's own error, when it takes no writes (OOM, READONLY, MISCONF): nothing changed, except that calls that have left the
--          window may be gone
--
-- Times never go back inside a list: a clock that is behind the newest entry is taken to be there. Calls that have left the window go first,
-- whatever the verdict, so each is looked at once.
local key, asked, window, limit, id = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local n = redis.call('LLEN', key)
local newest
if n > 0 then
  newest = n % 2 == 0 and tonumber(redis.call('LINDEX', key, -2))
  if not newest then return redis.error_reply('DAMAGED ' .. key .. ' holds no pairs of time and id word') end
end
local now = math.max(asked, newest or asked)
local edge = now - window

-- how many elements at the head have left the window: mostly none, so it looks at one call first, then at twice as many each time
local old, step = 0, 2
if newest and newest <= edge then old = n end
local looking = n > 0
while looking and old < n do
  local some = redis.call('LRANGE', key, old, old + step - 1)
  step = math.min(2 * step, 256)
  for i = 1, #some, 2 do
    local time = tonumber(some[i])
    if not time then return redis.error_reply('DAMAGED ' .. key .. ' holds no pairs of time and id word') end
    looking = time <= edge
    if not looking then break end
    old = old + 2
  end
end

local again = false
if id ~= '0' and old < n then
  local at = redis.call('LPOS', key, id, 'RANK', -1)
  again = at and at >= old
end
local used = (n - old) / 2

if old > 0 then redis.call('LTRIM', key, old, -1) end
local verdict, wait = 0, 0
if again then
  verdict = 2
elseif used < limit then
  verdict, used, newest = 1, used + 1, now
  redis.call('RPUSH', key, string.format('%.0f', now), id)
  redis.call('PEXPIRE', key, window)
else
  wait = tonumber(redis.call('LINDEX', key, 2 * (used - limit))) + window - asked
end
-- A key of a clock that went ahead is gone after the window all the same.
return {verdict, used, math.min(wait, window), math.min(newest + window - asked, window)}
