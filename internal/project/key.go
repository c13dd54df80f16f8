package project

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
)

// Scope is what a key may do.
type Scope uint8

// The scopes. Admin may do everything the others may.
const (
	Write Scope = 1 + iota // send events
	Read                   // ask for numbers
	Admin                  // and manage the project and its keys
)

var scopes = []struct{ name, prefix string }{Write: {"write", "rcw_"}, Read: {"read", "rcr_"}, Admin: {"admin", "rca_"}}

// ParseScope reads write, read or admin.
func ParseScope(name string) (Scope, error) {
	for s := Write; s <= Admin; s++ {
		if scopes[s].name == name {
			return s, nil
		}
	}
	return 0, fmt.Errorf("%q: want one of write, read, admin", clip(name))
}

func (s Scope) String() string { return scopes[s].name }

// Prefix is what keys of this scope begin with: rcw_, rcr_, rca_.
func (s Scope) Prefix() string { return scopes[s].prefix }

// MarshalText is String.
func (s Scope) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is ParseScope.
func (s *Scope) UnmarshalText(text []byte) (err error) {
	*s, err = ParseScope(string(text))
	return err
}

// Key is one key. The key itself is known to its holder only; here is its SHA-256, which is as good for looking it up and no good for
// using it: keys have 200 random bits.
type Key struct {
	ID      string // its first 12 characters, so that a key that was found somewhere can be told
	Name    string // free text
	Project string // "" = every project; only for Admin
	Scope   Scope
	Sum     [sha256.Size]byte
	Source  Source
	Created time.Time // zero when not known
	Expires time.Time // zero = never
	Revoked time.Time // zero = not

	used *atomic.Int64 // unix seconds, 0 = never; shared by all versions of the key
}

// LastUsed is when the key last opened something, on any node; to a minute. Zero = never.
func (k *Key) LastUsed() time.Time {
	if s := k.used.Load(); s > 0 {
		return time.Unix(s, 0).UTC()
	}
	return time.Time{}
}

// Ended is when the key stops, or stopped, working: the earlier of Expires and Revoked. Zero = never.
func (k *Key) Ended() time.Time {
	if k.Revoked.IsZero() || !k.Expires.IsZero() && k.Expires.Before(k.Revoked) {
		return k.Expires
	}
	return k.Revoked
}

// Generate makes a new secret: the scope's prefix and 40 characters with 200 random bits.
func Generate(s Scope) string { return s.Prefix() + (rand.Text() + rand.Text())[:40] }

// KeyID is the public part of a secret.
func KeyID(secret string) string { return secret[:min(len(secret), 12)] }

// SumID is the id of a key of which only the hash is known.
func SumID(sum [sha256.Size]byte) string { return "sha256_" + hex.EncodeToString(sum[:8]) }

// WellFormed tells whether a secret looks like one that Generate made for the scope.
func WellFormed(secret string, s Scope) bool {
	return strings.HasPrefix(secret, s.Prefix()) && len(secret) >= len(s.Prefix())+20 && len(secret) <= 100
}
