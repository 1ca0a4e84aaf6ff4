// Package test holds what is checked across packages: the shape of the code
// here, and the product end to end in script.
package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/berth-run/berth"

// rule lists the folders of Berth that packages below a folder may import from, and says why.
type rule struct {
	folder string
	may    []string
	why    string
}

// rules has one line for each folder. The longest folder that holds a package rules it, and a package
// without a rule fails the test. Packages below one rule may import each other only if the rule lists
// its own folder; a package and the packages below it always may.
var rules = []rule{
	{"internal/base", []string{"internal/base"}, "base knows mechanisms of the machine, and no pods"},
	{"internal/model", []string{"internal/base", "internal/model"},
		"model has values, and knows nothing of what is done with them"},
	{"internal/record", []string{"internal/base", "internal/model"},
		"record writes down what happened, and causes nothing"},
	{"internal/cri", []string{"internal/base"},
		"the boundary knows requests and answers of the CRI, never pods"},
	{"internal/runtime",
		[]string{"internal/base", "internal/cri", "internal/runtime/assets", "internal/runtime/decompress",
			"internal/runtime/replace", "internal/runtime/unpack"},
		"a runtime knows the CRI, never pods"},
	{"internal/docker", []string{"internal/base", "internal/docker"},
		"a runtime knows the CRI, never pods"},
	{"internal/node", []string{"internal/base", "internal/model", "internal/record", "internal/cri", "internal/node"},
		"node knows the machine, and no pod's life"},
	{"internal/config", []string{"internal/base", "internal/node"}, "config is read before anything else is built"},
	{"internal/pod/plan", []string{"internal/base", "internal/model"}, "the plan is pure: it sees values only"},
	{"internal/pod/aside", []string{"internal/base", "internal/model", "internal/record"},
		"a pod is set aside without knowing which part has panicked"},
	{"internal/pod/worker", []string{"internal/base", "internal/model", "internal/record", "internal/pod/plan"},
		"the worker runs steps without knowing which"},
	{"internal/pod/steps",
		[]string{"internal/base", "internal/model", "internal/record", "internal/cri", "internal/node",
			"internal/config", "internal/pod/plan", "internal/pod/worker"},
		"a step never imports another: declare the two lines you need of it as an interface here"},
	{"internal/pod/source", []string{"internal/base", "internal/model", "internal/pod/source"},
		"data flows from the sources to the worker, not back"},
	{"internal/pod/admission", []string{"internal/base", "internal/model", "internal/node"},
		"admission decides on values, before a pod has a worker"},
	{"internal/pod/pleg", []string{"internal/base", "internal/model", "internal/cri"},
		"what is observed is read by others; pleg does not act"},
	{"internal/pod/podstatus", []string{"internal/base", "internal/model", "internal/pod/plan"},
		"a status is computed from values, and acts on nothing"},
	{"internal/pod/status",
		[]string{"internal/base", "internal/model", "internal/record", "internal/node/telemetry", "internal/pod/fleet",
			"internal/pod/worker", "internal/pod/podstatus", "internal/pod/steps/probe", "internal/pod/steps/resize"},
		"a status shows what the fleet and the steps know, and changes neither"},
	{"internal/pod/fleet", []string{"internal/base", "internal/model", "internal/pod/worker"},
		"the fleet runs workers without knowing their steps"},
	{"internal/pod/gate",
		[]string{"internal/base", "internal/model", "internal/record", "internal/pod/admission", "internal/pod/fleet",
			"internal/pod/podstatus"}, "admission answers the fleet, and knows no step by name"},
	{"internal/pod/stop",
		[]string{"internal/base", "internal/model", "internal/record", "internal/pod/fleet"},
		"a stop is written, and the worker carries it out"},
	{"internal/cluster",
		[]string{"internal/base", "internal/model", "internal/record", "internal/cri", "internal/node",
			"internal/config",
			"internal/pod", "internal/cluster"}, "the cluster's side knows pods; pods work without a cluster"},
	{"internal/api",
		[]string{"internal/base", "internal/model", "internal/record", "internal/cri", "internal/node", "internal/api"},
		"servers speak to interfaces, so that they can be tested without an agent"},
	{"internal/agent",
		[]string{"internal/base", "internal/model", "internal/record", "internal/cri", "internal/runtime",
			"internal/docker", "internal/node",
			"internal/config", "internal/pod", "internal/cluster", "internal/api", "internal/agent"},
		"agent wires everything but the command line"},
	{"internal/ui", []string{"internal/base", "internal/model", "internal/record", "internal/api"},
		"the web page is a client of the agent, as the command line is"},
	{"internal/cli", []string{"internal"}, "the command line is at the top"},
	{"cmd", []string{"internal/cli", "internal/base"}, "main only starts"},
	{"test", []string{"internal", "test"}, "tests may look at everything"},
	{"bench", []string{"internal", "test", "bench"}, "measurements may look at everything"},
}

type source struct {
	dir, name string
	file      *ast.File
	lines     int
	text      string
}

// ruleOf is the rule of the longest folder that holds dir; ok is false if none does.
func ruleOf(dir string) (r rule, ok bool) {
	for _, c := range rules {
		if within(dir, c.folder) && len(c.folder) >= len(r.folder) {
			r, ok = c, true
		}
	}
	return r, ok
}

func within(dir, folder string) bool { return dir == folder || strings.HasPrefix(dir, folder+"/") }

// unit is the noun that a directory belongs to: the first folder below its rule. A noun and its
// sub-packages may import each other.
func unit(dir string) string {
	r, _ := ruleOf(dir)
	rest, below := strings.CutPrefix(dir, r.folder+"/")
	if !below {
		return dir
	}
	first, _, _ := strings.Cut(rest, "/")
	return r.folder + "/" + first
}

func isCheck(dir string) bool {
	return within(dir, "test") || within(dir, "bench")
}

func load(t *testing.T) ([]source, *token.FileSet) {
	t.Helper()
	set := token.NewFileSet()
	var all []source
	err := filepath.WalkDir("..", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() &&
			(d.Name() == "testdata" || d.Name() == "tools" || strings.HasPrefix(d.Name(), ".") && name != "..") {
			return filepath.SkipDir
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(set, name, text, parser.ParseComments)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel("..", name)
		all = append(all,
			source{dir: path.Dir(rel), name: rel, file: file, lines: strings.Count(string(text), "\n"),
				text: string(text)})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all, set
}

func isTest(s source) bool { return strings.HasSuffix(s.name, "_test.go") }

func TestImports(t *testing.T) {
	all, _ := load(t)
	used := map[string]bool{} // by the folders of rule and import
	for _, s := range all {
		r, ok := ruleOf(s.dir)
		if !ok {
			t.Errorf("%s lies in no folder that has a rule: add one to rules, or move it", s.name)
			continue
		}
		if isTest(s) {
			continue
		}
		for _, i := range s.file.Imports {
			to, ours := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), module+"/")
			if !ours || unit(to) == unit(s.dir) || within(to, r.folder) && unit(s.dir) == r.folder ||
				within(s.dir, to) {
				continue
			}
			may := slices.IndexFunc(r.may, func(folder string) bool { return within(to, folder) })
			if may < 0 {
				t.Errorf("%s imports %s: %s", s.name, to, r.why)
				continue
			}
			used[r.folder+" "+r.may[may]] = true
		}
	}
	for _, r := range rules {
		for _, folder := range r.may {
			if !used[r.folder+" "+folder] {
				t.Errorf("nothing in %s imports from %s: remove it from the rule", r.folder, folder)
			}
		}
	}
}

func TestEveryPackageSaysWhatItOwns(t *testing.T) {
	all, _ := load(t)
	documented := map[string]bool{}
	for _, s := range all {
		if strings.HasPrefix(s.dir, "internal/") && !isTest(s) {
			documented[s.dir] = documented[s.dir] || s.file.Doc != nil && path.Base(s.name) == "doc.go"
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(documented)) {
		if !documented[dir] {
			t.Errorf("%s has no doc.go with a package comment: what it owns, who writes it, who reads it", dir)
		}
	}
}

// A decision is a function from values to a value.
func TestDecisionsArePure(t *testing.T) {
	all, _ := load(t)
	for _, s := range all {
		if path.Base(s.name) != "decide.go" {
			continue
		}
		for _, i := range s.file.Imports {
			switch strings.Trim(i.Path.Value, `"`) {
			case "context", "os", "os/exec", "net/http", "syscall", "golang.org/x/sys/unix", "sync":
				t.Errorf("%s imports %s: a decision has no effects, state or waiting", s.name, i.Path.Value)
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s starts a goroutine", s.name)
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" &&
					slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After"}, n.Sel.Name) {
					t.Errorf("%s uses time.%s: the time is a parameter", s.name, n.Sel.Name)
				}
			}
			return true
		})
	}
}

func TestNoInitAndNoDefaultLogger(t *testing.T) {
	all, _ := load(t)
	for _, s := range all {
		if isTest(s) || isCheck(s.dir) {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Name.Name == "init" && n.Recv == nil {
					t.Errorf("%s has an init function: what a package needs comes in by parameter", s.name)
				}
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "slog" &&
					slices.Contains([]string{"Default", "SetDefault", "Info", "Warn", "Error", "Debug"}, n.Sel.Name) {
					t.Errorf("%s uses slog.%s: the logger is a parameter", s.name, n.Sel.Name)
				}
			}
			return true
		})
	}
}
