package openapi

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rollcall/rollcall/internal/apperr"
	"github.com/rollcall/rollcall/web/api"
)

// kinds are the names by which the source knows them.
var kinds = map[string]apperr.Kind{
	"Internal": apperr.Internal, "Malformed": apperr.Malformed, "Unauthorized": apperr.Unauthorized, "Forbidden": apperr.Forbidden,
	"NotFound": apperr.NotFound, "Conflict": apperr.Conflict, "TooLarge": apperr.TooLarge, "Unsupported": apperr.Unsupported,
	"Invalid": apperr.Invalid, "RateLimited": apperr.RateLimited, "Unavailable": apperr.Unavailable,
}

// documented are the codes of a table of the document, with their statuses.
func documented(t *testing.T, table string) map[string]int {
	t.Helper()
	d, err := parse(source)
	if err != nil {
		t.Fatal(err)
	}
	codes := map[string]int{}
	for _, e := range d.Components.Schemas {
		if e.Name == table {
			for _, s := range e.Value.OneOf {
				codes[s.Const.Value] = s.Status
				if s.Description == "" {
					t.Errorf("%s has no description", s.Const.Value)
				}
			}
		}
	}
	if len(codes) == 0 {
		t.Fatalf("there is no table %s", table)
	}
	return codes
}

// codesOfIngest are the constants Code… of ingest/codes.go, those of verdicts and those of whole requests.
func codesOfIngest(t *testing.T) (all map[string]string, verdicts []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join("..", "..", "ingest", "codes.go"), nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	all = map[string]string{}
	for _, decl := range file.Decls {
		group, ok := decl.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		for _, spec := range group.Specs {
			v := spec.(*ast.ValueSpec)
			if name := v.Names[0].Name; strings.HasPrefix(name, "Code") {
				all[name] = literal(v.Values[0])
				if strings.Contains(group.Doc.Text(), "codes of Rejection") {
					verdicts = append(verdicts, all[name])
				}
			}
		}
	}
	if len(verdicts) < 20 || len(all) < 30 {
		t.Fatalf("%d codes, %d of verdicts: codes.go has another form now", len(all), len(verdicts))
	}
	return all, verdicts
}

// literal is a string literal's value, "" for anything else.
func literal(e ast.Expr) string {
	if l, ok := e.(*ast.BasicLit); ok && l.Kind == token.STRING {
		if s, err := strconv.Unquote(l.Value); err == nil {
			return s
		}
	}
	return ""
}

func TestEveryVerdictIsDocumented(t *testing.T) {
	_, verdicts := codesOfIngest(t)
	table := documented(t, "RejectionCode")
	for _, code := range verdicts {
		if _, ok := table[code]; !ok {
			t.Errorf("%s is not in the table RejectionCode", code)
		}
	}
	for code := range table {
		if !slices.Contains(verdicts, code) {
			t.Errorf("the table RejectionCode has %s, which ingest/codes.go does not", code)
		}
	}
}

// Every apperr.New of the packages behind the API, its code and status. A fault of the kind Internal is answered as "internal" alone
// (web.fail), whatever its code.
func TestEveryErrorCodeIsDocumented(t *testing.T) {
	constants, _ := codesOfIngest(t)
	table := documented(t, "ProblemCode")
	found := map[string]bool{}
	calls := 0
	visit := func(where string, kind, code ast.Expr) {
		calls++
		selector, ok := kind.(*ast.SelectorExpr)
		if !ok {
			t.Errorf("%s: the kind is no constant", where)
			return
		}
		k, ok := kinds[selector.Sel.Name]
		if !ok {
			t.Errorf("%s: kind %s is not known to this test", where, selector.Sel.Name)
			return
		}
		if k == apperr.Internal && literal(code) != "internal" {
			return
		}
		name := literal(code)
		switch c := code.(type) {
		case *ast.Ident:
			name = constants[c.Name]
		case *ast.SelectorExpr:
			name = constants[c.Sel.Name]
		}
		if name == "" {
			t.Errorf("%s: the code is neither a literal nor a constant of ingest/codes.go", where)
			return
		}
		found[name] = true
		want := api.Status(k)
		if name == "method_not_allowed" { // the one that web.fail answers otherwise
			want = 405
		}
		if got, ok := table[name]; !ok || got != want {
			t.Errorf("%s: %s is %d, the table ProblemCode has %d (0 = nothing)", where, name, want, got)
		}
	}
	for _, room := range []string{"web", "ingest", "counters", "internal"} {
		root := filepath.Join("..", "..", room)
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "apperr") {
				return err
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				f, ok := call.Fun.(*ast.SelectorExpr)
				if !ok || f.Sel.Name != "New" {
					return true
				}
				if x, ok := f.X.(*ast.Ident); ok && x.Name == "apperr" {
					visit(set.Position(call.Pos()).String(), call.Args[0], call.Args[1])
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if calls < 60 {
		t.Errorf("only %d calls of apperr.New", calls)
	}
	for code := range table {
		if !found[code] {
			t.Errorf("the table ProblemCode has %s, which nothing makes", code)
		}
	}
	for name, code := range constants {
		if _, verdict := documented(t, "RejectionCode")[code]; !verdict && !found[code] {
			t.Errorf("%s (%s) is in neither table", name, code)
		}
	}
}
