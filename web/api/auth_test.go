package api

import (
	"net/url"
	"slices"
	"strings"
	"testing"
)

// queryValue finds nothing that net/url would not find, and everything plain that it does find.
func FuzzQueryValue(f *testing.F) {
	for _, seed := range []string{"", "key=a", "key=", "a=1&key=%41%2B+b", "xkey=1&key=2&key=3", "key=%zz", "key", "&&key=a&", "k%65y=a", "key=a;b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		got := queryValue(query, "key")
		want, err := url.ParseQuery(query)
		if err != nil || strings.Contains(query, ";") {
			return // net/url drops such pairs, each in its own way
		}
		if got != "" && !slices.Contains(want["key"], got) {
			t.Errorf("query %q: got %q; net/url has %q", query, got, want["key"])
		}
		if first := want.Get("key"); got == "" && first != "" && !strings.Contains(query, "%") && !strings.HasPrefix("&"+query, "&key=&") && !strings.Contains(query, "&key=&") {
			t.Errorf("query %q: got nothing; net/url has %q", query, first)
		}
	})
}

func FuzzBearer(f *testing.F) {
	for _, seed := range []string{"", "Bearer", "Bearer x", "bearer   x ", "Basic eDp5", "Basic eA==", "Basic !", "Digest x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		key := bearer(header)
		scheme, _, _ := strings.Cut(header, " ")
		if key != "" && !strings.EqualFold(scheme, "bearer") && !strings.EqualFold(scheme, "basic") {
			t.Errorf("header %q gave key %q", header, key)
		}
	})
}
