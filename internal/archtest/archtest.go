// Package archtest keeps the arrows between packages pointing down: cmd → web → domains → internal.
package archtest

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// domains are the rooms that know what is counted. None imports another.
var domains = []string{"ingest", "counters", "signin", "leaderboard", "export"}

// file is what the rules look at.
type file struct {
	name    string // relative to the module's root
	room    string // first folder: cmd, web, a domain, internal
	pkg     string // folder
	test    bool
	imports []string
}

// Check parses the imports of every Go file below root and returns one line for each that breaks a rule. It fails on a folder that
// holds Go files and is no room, so that a new room is a decision.
func Check(root fs.FS, module string) ([]string, error) {
	var broken []string
	err := fs.WalkDir(root, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if base := path.Base(p); p != "." && (base == "testdata" || base[0] == '.' || base[0] == '_') {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(p) != ".go" {
			return nil
		}
		f, err := parse(root, p)
		if err != nil {
			return err
		}
		for _, imp := range f.imports {
			if why := f.breaks(imp, module); why != "" {
				broken = append(broken, fmt.Sprintf("%s imports %s: %s", f.name, imp, why))
			}
		}
		if !known(f.room) {
			broken = append(broken, fmt.Sprintf("%s: %q is no room", f.name, f.room))
		}
		return nil
	})
	return broken, err
}

func parse(root fs.FS, p string) (file, error) {
	src, err := fs.ReadFile(root, p)
	if err != nil {
		return file{}, err
	}
	ast, err := parser.ParseFile(token.NewFileSet(), p, src, parser.ImportsOnly)
	if err != nil {
		return file{}, err
	}
	f := file{name: p, room: room(p), pkg: path.Dir(p), test: strings.HasSuffix(p, "_test.go")}
	for _, spec := range ast.Imports {
		imp, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return file{}, err
		}
		f.imports = append(f.imports, imp)
	}
	return f, nil
}

func room(p string) string {
	first, _, ok := strings.Cut(p, "/")
	if !ok {
		return "."
	}
	return first
}

func known(room string) bool {
	return room == "cmd" || room == "web" || room == "internal" || slices.Contains(domains, room)
}

// breaks returns the rule that an import breaks, "" if none.
func (f file) breaks(imp, module string) string {
	if isPackage(imp, "github.com/gin-gonic/gin") && f.room != "web" && f.pkg != "cmd/bench" {
		return "gin stays in web (and in the handlers that cmd/bench compares with)"
	}
	local, ok := strings.CutPrefix(imp, module+"/")
	if !ok {
		return ""
	}
	to := room(local + "/")
	switch {
	case isPackage(local, "internal/config") && f.room != "cmd" && f.pkg != "internal/config":
		return "only cmd reads the configuration"
	case isPackage(local, "internal/realtest") && !f.test && f.pkg != "internal/realtest" && f.pkg != "cmd/bench":
		return "real servers for tests are for tests"
	case to == "cmd" && f.room != "cmd":
		return "nothing imports cmd"
	case to == "web" && f.room != "web" && f.room != "cmd":
		return "only cmd imports web"
	case slices.Contains(domains, to) && slices.Contains(domains, f.room) && to != f.room:
		return "a domain imports no other domain"
	case slices.Contains(domains, to) && f.room == "internal" && !f.test:
		return "internal knows no domain"
	}
	return ""
}

// isPackage tells whether imp is pkg or lies below it.
func isPackage(imp, pkg string) bool { return imp == pkg || strings.HasPrefix(imp, pkg+"/") }
