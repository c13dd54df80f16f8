package server

import "testing"

func TestQuote(t *testing.T) {
	for in, want := range map[string]string{
		"/a b":       `"/a b"`,
		`/a"\b`:      `"/a\"\\b"`,
		"/a\nsave '": `"/a\x0asave '"`,
		"/数据":        `"/数据"`,
	} {
		if got := Quote(in); got != want {
			t.Errorf("Quote(%q) = %s, want %s", in, got, want)
		}
	}
}
