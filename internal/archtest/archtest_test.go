package archtest

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

const module = "github.com/rollcall/rollcall"

func TestArrowsPointDown(t *testing.T) {
	root := os.DirFS("../..")
	broken, err := Check(root, module)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range broken {
		t.Error(line)
	}
}

// The checker must see what it looks for, or the test above proves nothing.
func TestPlantedViolationsAreCaught(t *testing.T) {
	f := func(name, imp, why string) {
		t.Helper()
		tree := fstest.MapFS{name: {Data: []byte("package x\n\nimport _ \"" + imp + "\"\n")}}
		broken, err := Check(tree, module)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(broken, "\n")
		if why == "" && got != "" || !strings.Contains(got, why) {
			t.Errorf("%s importing %s: %q; want %q", name, imp, got, why)
		}
	}
	f("counters/a.go", module+"/ingest", "no other domain")
	f("counters/a.go", module+"/ingest/files", "no other domain")
	f("counters/a_test.go", module+"/signin", "no other domain")
	f("counters/a.go", module+"/web", "only cmd imports web")
	f("internal/x/a.go", module+"/counters", "internal knows no domain")
	f("internal/x/a.go", module+"/web/api", "only cmd imports web")
	f("web/a.go", module+"/cmd/rollcall", "nothing imports cmd")
	f("ingest/a.go", "github.com/gin-gonic/gin", "gin stays in web")
	f("internal/x/a.go", "github.com/gin-gonic/gin/binding", "gin stays in web")
	f("cmd/rollcall/a.go", "github.com/gin-gonic/gin", "gin stays in web")
	f("counters/a.go", module+"/internal/config", "only cmd reads")
	f("internal/x/a.go", module+"/internal/config", "only cmd reads")
	f("ingest/a.go", module+"/internal/realtest", "for tests")
	f("a.go", "fmt", "is no room")
	f("util/a.go", "fmt", "is no room")

	f("cmd/rollcall/a.go", module+"/web", "")
	f("cmd/rollcall/a.go", module+"/internal/config", "")
	f("web/a.go", module+"/counters", "")
	f("web/api/a.go", "github.com/gin-gonic/gin", "")
	f("counters/a.go", module+"/counters/sub", "")
	f("counters/a.go", module+"/internal/event", "")
	f("counters/a_test.go", module+"/internal/realtest", "")
	f("internal/x/a_test.go", module+"/counters", "")
	f("testdata/a.go", "fmt", "")
}
