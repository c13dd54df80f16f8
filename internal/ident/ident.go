// Package ident builds the parts of a key: names that are checked or escaped, and the shard they belong to.
package ident

import (
	"github.com/zeebo/xxh3"

	"github.com/rollcall/rollcall/internal/apperr"
)

// MaxProject is the longest project id in bytes.
const MaxProject = 32

// Project checks a project id: [a-z0-9-]{1,32}. An id that breaks the rule is refused (apperr Invalid, bad_project), never escaped,
// since people read it in keys and URLs.
func Project(id string) error {
	ok := id != "" && len(id) <= MaxProject
	for i := 0; ok && i < len(id); i++ {
		c := id[i]
		ok = 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-'
	}
	if !ok {
		return apperr.New(apperr.Invalid, "bad_project", "A project id is 1 to 32 characters of a-z, 0-9 and the hyphen.").On("project")
	}
	return nil
}

// Shard places the parts in one of n shards: XXH3-64 of the parts joined by NUL, modulo n. It never changes, since stored keys depend on
// it. No part may contain NUL (projects, event names and users can't).
func Shard(n int, parts ...string) int { return int(Hash(parts...) % uint64(n)) }

// Hash is XXH3-64 of the parts joined by NUL. It never changes either.
func Hash(parts ...string) uint64 {
	size := len(parts)
	for _, p := range parts {
		size += len(p)
	}
	b := make([]byte, 0, size)
	for i, p := range parts {
		if i > 0 {
			b = append(b, 0)
		}
		b = append(b, p...)
	}
	return xxh3.Hash(b)
}

const hexDigits = "0123456789abcdef"

// Tag is a shard as it stands in keys: two hex digits. shard is 0 to 255.
func Tag(shard int) string { return string([]byte{hexDigits[shard>>4&15], hexDigits[shard&15]}) }

// AppendEscaped appends s to dst with every byte that has a meaning in a key written as % and two hex digits: controls, space, DEL and
// % : { } * / . Everything else, UTF-8 too, stays as it is, so that keys can be read. Different strings stay different.
func AppendEscaped(dst []byte, s string) []byte {
	from := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c > ' ' && c != 0x7f && c != '%' && c != ':' && c != '{' && c != '}' && c != '*' && c != '/' {
			continue
		}
		dst = append(dst, s[from:i]...)
		dst = append(dst, '%', hexDigits[c>>4], hexDigits[c&15])
		from = i + 1
	}
	return append(dst, s[from:]...)
}
