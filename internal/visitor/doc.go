// Package visitor tells who sent a request: the address behind trusted proxies, whether the user agent is a bot's, and an id for a visitor
// whose events carry none.
//
// # What anonymous ids do to UV
//
// An anonymous id is made from the project's salt, the address and the user agent; rollcall stores neither of the latter two. People
// who share an address (an office, a carrier's gateway) and send equal user agents are one visitor; one person with two devices, or whose
// address or browser changed, is two. Beyond that it depends on the salt, which a project chooses:
//
//   - daily: a new salt for each local day, deleted after two more. Then nobody can link the days who has not kept a copy of the
//     salt. UV of one day counts a person once; UV of a longer range counts a person once for each day, and so do WAU and MAU. Retention,
//     cohorts and streaks of anonymous visitors mean nothing.
//   - stable: one salt for ever. UV of any range counts a person once, for as long as address and browser stay the same (an IPv6 address
//     of a phone or laptop usually lasts a day, a browser's version a month). It links the days of a person, which in many places takes
//     the person's consent.
//
// A change from one to the other makes every anonymous visitor a new one.
package visitor
