// Package leaderboard is RANK: boards of members by score, with seasons and ties.
//
// It is not built yet: only the name is taken.
package leaderboard
