package ingest

import (
	"strings"
	"testing"

	"github.com/rollcall/rollcall/internal/apperr"
)

func TestPixel(t *testing.T) {
	f := func(query, referer, want string) {
		t.Helper()
		body, err := AppendPixel(nil, query, referer)
		if err != nil {
			if got := apperr.As(err).Code; got != want {
				t.Errorf("?%s: got %s, want %s", query, got, want)
			}
			return
		}
		events, v, err := judged(t, string(body), Rules{})
		if err != nil {
			t.Fatalf("?%s: %s is no body: %v", query, body, err)
		}
		got := summary(events, v)
		for _, e := range events {
			got = strings.TrimSpace(got + " " + e.ID + " " + propsOf(e))
		}
		if got != want {
			t.Errorf("?%s\n got %s\nwant %s", query, got, want)
		}
	}
	f("", "", "page_view/")
	f("key=k&user=u1&id=m1&event=open", "", "open/u1 m1")
	f("event=&user=&id=&ts=&value=&p.a=", "", "page_view/")
	f("user=%E9%98%85+%22%5C%0A&p.a=x%26y&p.b=1&_=17", "", "page_view/阅 \"\\\n  a:sx&y b:s1")
	f("value=12.50&ts=1796036400", "", "page_view/  =12.50")
	f("ts=2026-11-30T08:00:00%2B08:00", "", "page_view/")
	f("user=9007199254740993", "", "page_view/9007199254740993")
	f("us%65r=u1", "", "page_view/u1")
	f("%zz=1&user=u1&&=&other=%zz", "", "page_view/u1")
	// The page that shows it.
	f("", "https://shop.example/book/7?token=secret#x", "page_view/  page:s/book/7")
	f("p.page=/given", "https://shop.example/book/7", "page_view/  page:s/given")
	f("", "https://shop.example/", "page_view/")
	f("", "https://shop.example/\xff", "page_view/")
	f("event=mail", "https://shop.example/"+strings.Repeat("x", 3000), "mail/  page:s/"+strings.Repeat("x", 1023))
	// Refused by the rules of any event.
	f("user=%FF", "", "#0 bad_utf8 user")
	f("event=a%FF", "", "#0 bad_utf8 event")
	f("p.a=%FF", "", "#0 bad_utf8 props.a")
	f("user=%00", "", "#0 bad_user user")
	f("user=null", "", "#0 placeholder_user user")
	f("user=a&user=b", "", "#0 duplicate_field user")
	f("p.a=1&p.a=2", "", "#0 duplicate_field props.a")
	f("event=$other", "", "#0 reserved_event event")
	f("event="+strings.Repeat("x", 65), "", "#0 too_long event")
	f("p.page="+strings.Repeat("x", 1025), "", "#0 too_long props.page") // ID-05: named, not lost
	f("value=x", "", "#0 bad_value value")
	f("value=1e999", "", "#0 bad_value value")
	f("value=1,%22event%22:%22x%22", "", "#0 bad_value value")
	f("ts=soon", "", "#0 bad_ts ts")
	f("ts=2020-01-01T00:00:00Z", "", "#0 too_late ts")
	f("p.=1", "", "#0 bad_props props")
	f("user=%zz", "", CodeQuery)
	f("p.a=%4", "", CodeQuery)
}

// FuzzPixel: whatever the query is, it makes one event of JSON or an error for the client.
func FuzzPixel(f *testing.F) {
	f.Add("event=e&user=%FF&id=1&ts=1&value=1.5&p.a=%22&p.b=%5C", "https://a/b?c")
	f.Add("%zz&&p.=&value=1}", "\xff")
	f.Fuzz(func(t *testing.T, query, referer string) {
		body, err := AppendPixel(nil, query, referer)
		if err != nil {
			if e := apperr.As(err); e.Kind != apperr.Malformed || e.Code != CodeQuery {
				t.Fatalf("?%q: %v", query, err)
			}
			return
		}
		events, v, err := judged(t, string(body), Rules{})
		if err != nil || v.Received != 1 {
			t.Fatalf("?%q: %q: %+v %v", query, body, v, err)
		}
		for i := range events {
			mustBeGood(t, &events[i], false)
		}
	})
}
