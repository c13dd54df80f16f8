// Package signin is CHECK IN: who signed in on which day, make-ups, and how many days running.
//
// It is not built yet: only the name is taken.
package signin
