// Package test holds what is checked across packages: the shape of the code
// here, and the product end to end in script.
package test

import (
	"fmt"
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

// Budgets. What does not fit is two things, or too long to read.
const (
	maxFunctionLines = 80
	maxParameters    = 6
	maxFields        = 20
	maxMethods       = 25
	maxPackageLines  = 2500
)

// mayImport is the direction in which packages see each other: for each group
// the groups it may import. A package belongs to the group of the longest
// prefix; one that is not listed is a step.
var groups = map[string]string{
	"cmd": "cmd", "internal/cli": "cli", "internal/agent": "agent", "internal/client": "client",
	"internal/pod": "noun", "internal/reason": "noun", "internal/store": "noun", "internal/checkpoint": "noun",
	"internal/config": "noun", "internal/event": "noun", "internal/timeline": "noun", "internal/podlog": "noun", "internal/node": "noun",
	"internal/document": "noun", "internal/safepath": "noun", "internal/object": "noun", "internal/archive": "noun", "internal/fleet": "fleet",
	"internal/clock": "noun", "internal/machine": "noun", "internal/cgroupfile": "noun", "internal/resource": "noun", "internal/mount": "noun", "internal/token": "noun", "internal/diskusage": "noun", "internal/plugin": "noun",
	"internal/plan": "plan", "internal/worker": "worker",
	"internal/cri": "cri", "internal/runtime": "runtime",
	"internal/source": "in", "internal/admission": "in", "internal/pleg": "observe", "internal/podstatus": "observe",
	"internal/server": "server", "internal/podresources": "server", "internal/auth": "server", "internal/stats": "server", "internal/telemetry": "server",
	"test": "test", "bench": "test", "example": "test",
}

const step = "step"

var mayImport = map[string][]string{
	"cmd":     {"cli", "runtime", "client", "agent", "noun"},
	"cli":     {"agent", "client", "runtime", "server", "noun", "in", "cri"},
	"agent":   {"noun", "fleet", "plan", "worker", "cri", "runtime", "in", "observe", "server", step},
	"fleet":   {"noun", "worker", "plan"},
	"client":  {"noun", "server"},
	"server":  {"noun"},
	"in":      {"noun"},
	"observe": {"noun", "plan", "cri"},
	step:      {"noun", "plan", "worker", "cri"},
	"worker":  {"noun", "plan"},
	"plan":    {"noun"},
	"cri":     {"noun"},
	"runtime": {},
	"noun":    {"noun"},
}

// why is the second half of the message for a forbidden import.
var why = map[string]string{
	step:      "a step never imports another: declare the two lines you need of it as an interface here",
	"noun":    "nouns know nothing of what is done with them",
	"plan":    "decisions are pure: they see values only",
	"worker":  "the worker runs steps without knowing which",
	"runtime": "the runtime knows CRI, never pods",
	"cri":     "the boundary knows requests and answers, never pods",
	"server":  "the server speaks to interfaces, so that it can be tested without an agent",
	"in":      "data flows from the sources to the worker, not back",
	"observe": "what is observed is read by others; it does not act",
}

// exceptions to the budgets and rules, each with its reason.
// Interceptors have the parameters that gRPC gives them.
var exceptions = map[string]string{
	"internal/cri.traceCall":                     "grpc.UnaryClientInterceptor",
	"internal/cri.Client.reportTrouble":          "grpc.UnaryClientInterceptor",
	"internal/cri.checkCall":                     "grpc.UnaryClientInterceptor",
	"internal/cri.metrics.countCall":             "grpc.UnaryClientInterceptor",
	"internal/server/servertest.commands.Exec":   "the interface of cri-streaming",
	"internal/server/servertest.commands.Attach": "the interface of cri-streaming",
	"internal/pod.ContainerStatus":               "what a runtime tells of a container, CRI's words one by one",
	"internal/plan.computation":                  "one plan is one computation, its methods are the rules of it",
	"internal/podstatus.computation":             "one status is one computation, its methods are the paragraphs of it",
	"internal/volume.Volumes":                    "the step, what others look up in it, and its metrics",
	"internal/probe.Probes":                      "the schedule of all probes and the four ways to ask",
}

type source struct {
	dir, name string
	file      *ast.File
	lines     int
	text      string
}

func group(dir string) string {
	for d := dir; d != "."; d = path.Dir(d) {
		if g, ok := groups[d]; ok {
			return g
		}
	}
	if strings.HasPrefix(dir, "internal/") {
		return step
	}
	return "test"
}

// unit is the package that a directory belongs to: sub-packages of one noun are
// one unit.
func unit(dir string) string {
	parts := strings.Split(dir, "/")
	return strings.Join(parts[:min(2, len(parts))], "/")
}

func load(t *testing.T) ([]source, *token.FileSet) {
	t.Helper()
	set := token.NewFileSet()
	var all []source
	err := filepath.WalkDir("..", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || d.Name() == "tools" || strings.HasPrefix(d.Name(), ".") && name != "..") {
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
		all = append(all, source{dir: path.Dir(rel), name: rel, file: file, lines: strings.Count(string(text), "\n"), text: string(text)})
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
	for _, s := range all {
		if isTest(s) {
			continue
		}
		from := group(s.dir)
		for _, i := range s.file.Imports {
			to, ours := strings.CutPrefix(strings.Trim(i.Path.Value, `"`), module+"/")
			if !ours || from == "test" || unit(to) == unit(s.dir) {
				continue
			}
			if !slices.Contains(mayImport[from], group(to)) {
				t.Errorf("%s imports %s: %s", s.name, to, why[from])
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
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "Sleep", "After"}, n.Sel.Name) {
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
		if isTest(s) || group(s.dir) == "test" {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Name.Name == "init" && n.Recv == nil {
					t.Errorf("%s has an init function: what a package needs comes in by parameter", s.name)
				}
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "slog" && slices.Contains([]string{"Default", "SetDefault", "Info", "Warn", "Error", "Debug"}, n.Sel.Name) {
					t.Errorf("%s uses slog.%s: the logger is a parameter", s.name, n.Sel.Name)
				}
			}
			return true
		})
	}
}

func TestBudgets(t *testing.T) {
	all, set := load(t)
	over := func(key string, got, most int, what string) {
		if got > most && exceptions[key] == "" {
			t.Errorf("%s has %d %s, the budget is %d", key, got, what, most)
		}
	}
	lines, methods := map[string]int{}, map[string]int{}
	for _, s := range all {
		if isTest(s) {
			continue
		}
		lines[s.dir] += s.lines
		ast.Inspect(s.file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				key := s.dir + "." + n.Name.Name
				if n.Recv != nil {
					receiver := receiver(n)
					key = s.dir + "." + receiver + "." + n.Name.Name
					methods[s.dir+"."+receiver]++
				}
				over(key, set.Position(n.End()).Line-set.Position(n.Pos()).Line+1, maxFunctionLines, "lines")
				over(key, n.Type.Params.NumFields(), maxParameters, "parameters")
			case *ast.TypeSpec:
				if st, ok := n.Type.(*ast.StructType); ok {
					over(s.dir+"."+n.Name.Name, st.Fields.NumFields(), maxFields, "fields")
				}
			}
			return true
		})
	}
	for key, n := range methods {
		over(key, n, maxMethods, "methods")
	}
	for key, n := range lines {
		over(key, n, maxPackageLines, "lines of code")
	}
}

func receiver(f *ast.FuncDecl) string {
	t := f.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return fmt.Sprintf("%T", t)
		}
	}
}
