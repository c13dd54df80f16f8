package period

import (
	"archive/zip"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// goZones are the zones of the Go installation, which hold rules where the files of a system may list years.
func goZones(t *testing.T) (zones []*time.Location) {
	t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	z, err := zip.OpenReader(filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	for _, f := range z.File {
		if strings.HasSuffix(f.Name, "/") {
			continue
		}
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		r.Close()
		if err != nil {
			t.Fatal(err)
		}
		loc, err := time.LoadLocationFromTZData(f.Name, data)
		if err != nil {
			t.Fatal(err)
		}
		zones = append(zones, loc)
	}
	if len(zones) < 300 {
		t.Fatalf("%d zones", len(zones))
	}
	return zones
}

// Buckets tile the last days of leap years, of all years that events and questions can have, in every zone: there the standard library names an
// end of the zone's rule that lies in the past.
func TestTheEndOfLeapYears(t *testing.T) {
	for _, loc := range goZones(t) {
		for year := 1972; year <= 2104; year += 4 {
			d := Of(Day, time.Date(year, 12, 29, 12, 0, 0, 0, time.UTC), loc)
			for range 5 {
				next := d.Next(loc)
				if !d.To.After(d.From) || !next.From.Equal(d.To) || next.Label <= d.Label {
					t.Fatalf("%s: %+v is followed by %+v", loc, d, next)
				}
				n := 0
				for h := Of(Hour, d.From, loc); h.From.Before(d.To); h = h.Next(loc) {
					if n++; n > 50 || !h.To.After(h.From) {
						t.Fatalf("%s: hour %d of %s is %+v", loc, n, d.Label, h)
					}
				}
				d = next
			}
			if got := Of(Month, d.From, loc); !got.From.Before(got.To) {
				t.Fatalf("%s: %+v", loc, got)
			}
		}
	}
}
