package ingest

import (
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/rollcall/rollcall/internal/apperr"
)

// pixelFields are the parameters of a pixel that are fields of its event.
var pixelFields = map[string]string{"event": "event", "user": "user", "id": "id", "ts": "ts", "value": "value"}

// pixelEvent is what a pixel that names none counts as.
const pixelEvent = "page_view"

// AppendPixel appends the event that the query of a pixel stands for, as one JSON object: event (page_view when there is none), user,
// id, ts, value, and p.<prop> for each prop, as a string. What is empty is absent, and what is unknown is not looked at. referer is
// the page that shows the pixel ("" = not known); its path becomes the prop page, unless that is given or the path is only /.
//
// It does not judge: Judge does that, so bytes are left as they are, UTF-8 or not. The error is malformed_query.
func AppendPixel(dst []byte, query, referer string) ([]byte, error) {
	var props []string // key, value, …
	named, paged := false, false
	dst = append(dst, '{')
	for query != "" {
		var part string
		part, query, _ = strings.Cut(query, "&")
		name, value, _ := strings.Cut(part, "=")
		name, err := url.QueryUnescape(name)
		if err != nil {
			continue // whatever it is called, it is none of ours
		}
		field := pixelFields[name]
		prop, isProp := strings.CutPrefix(name, "p.")
		if value == "" || field == "" && !isProp {
			continue
		}
		if value, err = url.QueryUnescape(value); err != nil {
			return dst, errPixelQuery.On(field)
		}
		if isProp {
			paged = paged || prop == "page"
			props = append(props, prop, value)
			continue
		}
		named = named || field == "event"
		dst = appendMember(dst, field)
		if s := (scanner{b: []byte(value)}); field == "value" {
			if _, _, ok := s.number(); ok && s.i == len(value) {
				dst = append(dst, value...)
				continue
			}
		}
		dst = appendRaw(dst, value)
	}
	if !named {
		dst = appendRaw(appendMember(dst, "event"), pixelEvent)
	}
	// Browsers cut the referer of another origin down to its root: that tells nothing about the page.
	if page := pathOf(referer); !paged && len(page) > 1 && utf8.ValidString(page) {
		props = append(props, "page", page)
	}
	if len(props) > 0 {
		dst = append(appendMember(dst, "props"), '{')
		for i := 0; i < len(props); i += 2 {
			dst = appendRaw(appendMember(dst, props[i]), props[i+1])
		}
		dst = append(dst, '}')
	}
	return append(dst, '}'), nil
}

var errPixelQuery = apperr.New(apperr.Malformed, CodeQuery, "A parameter of the query is not percent-encoded as it should be. Nothing was stored.")

// appendMember begins a member of an object.
func appendMember(dst []byte, key string) []byte {
	if dst[len(dst)-1] != '{' {
		dst = append(dst, ',')
	}
	return append(appendRaw(dst, key), ':')
}

// appendRaw appends s as a JSON string and leaves bytes that are not UTF-8 for the judge to find.
func appendRaw(dst []byte, s string) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < ' ':
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}
