package test

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// Budgets. A type or function that does not fit is two things, or too long to read.
// Split it at a noun. Do not pack it.
const (
	maxFunctionLines    = 80
	maxParameters       = 6
	maxFields           = 20
	maxMethods          = 25
	maxFunctionLiterals = 5 // in one struct literal
	maxPackageLines     = 1800
	// columns is how long a line may be, in Go and in the prose of pages.
	columns  = 120
	tabWidth = 4
)

// exceptions to the budgets, each with its reason in one sentence. A type that is within its budgets needs none, and
// the test fails until its line is gone.
var exceptions = map[string]string{
	"internal/api/servertest.commands.Exec":   "The streaming library sets the parameters of this method.",
	"internal/api/servertest.commands.Attach": "The streaming library sets the parameters of this method.",
	"internal/model/pod.ContainerStatus":      "It has one field for each field of a container's status in the CRI.",
	"internal/pod/plan.computation":           "Each method is one rule of the computation of a plan.",
	"internal/pod/podstatus.computation":      "Each method fills one part of the status of a pod.",

	"internal/docker/dockerstream.Streams.Exec":   "The streaming library sets the parameters of this method.",
	"internal/docker/dockerstream.Streams.Attach": "The streaming library sets the parameters of this method.",
	"internal/runtime/attach.Server.Exec":         "The streaming library sets the parameters of this method.",
	"internal/runtime/attach.Server.Attach":       "The streaming library sets the parameters of this method.",
}

// shape has the numbers of one struct type that have a budget.
type shape struct {
	fields  int      // without embedded structs of the same package
	methods int      // of its own
	parts   []string // structs of the same package that it embeds beside other fields
	wraps   string   // the struct of the same package that is its only field; "" for none
}

// shapes returns the shape of every type that has fields or methods, by directory and name.
func shapes(all []source) map[string]*shape {
	found := map[string]*shape{}
	of := func(key string) *shape {
		if found[key] == nil {
			found[key] = &shape{}
		}
		return found[key]
	}
	structs := map[string]bool{}
	each(all, func(s source, n ast.Node) {
		if t, ok := n.(*ast.TypeSpec); ok {
			_, structs[s.dir+"."+t.Name.Name] = t.Type.(*ast.StructType)
		}
	})
	each(all, func(s source, n ast.Node) {
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Recv != nil {
				of(s.dir+"."+receiver(n)).methods++
			}
		case *ast.TypeSpec:
			if t, ok := n.Type.(*ast.StructType); ok {
				of(s.dir+"."+n.Name.Name).take(s.dir, t, structs)
			}
		}
	})
	return found
}

// take counts the fields of a struct.
func (x *shape) take(dir string, t *ast.StructType, structs map[string]bool) {
	for _, f := range t.Fields.List {
		typ := f.Type
		if star, ok := typ.(*ast.StarExpr); ok {
			typ = star.X
		}
		ours := ""
		if id, ok := typ.(*ast.Ident); ok && structs[dir+"."+id.Name] {
			ours = dir + "." + id.Name
		}
		switch {
		case ours != "" && t.Fields.NumFields() == 1:
			x.wraps = ours
			x.fields++
		case ours != "" && len(f.Names) == 0:
			x.parts = append(x.parts, ours)
		default:
			x.fields += max(1, len(f.Names))
		}
	}
}

// totals counts the fields of a type and of its parts, and the methods of the type, of its parts, and of the types that
// wrap it.
func totals(found map[string]*shape, key string) (fields, methods int) {
	x := found[key]
	fields, methods = x.fields, x.methods
	for _, part := range x.parts {
		f, m := totals(found, part)
		fields, methods = fields+f, methods+m
	}
	for wrapper, w := range found {
		if w.wraps == key && wrapper != key {
			methods += w.methods
		}
	}
	return fields, methods
}

// each calls visit for every node of the files that are no tests.
func each(all []source, visit func(source, ast.Node)) {
	for _, s := range all {
		if isTest(s) {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			visit(s, n)
			return true
		})
	}
}

// tooLong returns the numbers of the lines that are too long. A line is spared if a link alone makes it too long.
func tooLong(text string) (numbers []int) {
	number := 0
	for line := range strings.Lines(text) {
		number++
		width := utf8.RuneCountInString(strings.TrimRight(line, "\n")) + (tabWidth-1)*strings.Count(line, "\t")
		if width-utf8.RuneCountInString(linkInText.FindString(line)) > columns {
			numbers = append(numbers, number)
		}
	}
	return numbers
}

var linkInText = regexp.MustCompile(`https?://\S+`)

// Tables and code of a page may have longer lines, and so may a page that a program has written.
func TestBudgetsOfColumns(t *testing.T) {
	const written = "bench/RESULTS.md"
	table := regexp.MustCompile("(?ms)^ *\\|[^\n]*|^ *```.*?^ *```")
	all, _ := load(t)
	texts := map[string]string{}
	for _, s := range all {
		texts[s.name] = s.text
	}
	for _, page := range pages(t) {
		text, err := os.ReadFile(filepath.Join("..", page))
		if err != nil {
			t.Fatal(err)
		}
		texts[page] = table.ReplaceAllStringFunc(string(text), func(s string) string {
			return strings.Repeat("\n", strings.Count(s, "\n"))
		})
	}
	delete(texts, written)
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		if numbers := tooLong(texts[name]); len(numbers) > 0 {
			t.Errorf("%s: lines %v are longer than %d columns: wrap them", name, numbers, columns)
		}
	}
}

func TestBudgets(t *testing.T) {
	all, set := load(t)
	needed := map[string]bool{}
	over := func(key string, got, most int, what string) {
		if got <= most {
			return
		}
		if needed[key] = true; exceptions[key] == "" {
			t.Errorf("%s has %d %s, the most is %d: split it at a noun", key, got, what, most)
		}
	}
	each(all, func(s source, n ast.Node) {
		switch n := n.(type) {
		case *ast.FuncDecl:
			key := s.dir + "." + n.Name.Name
			if n.Recv != nil {
				key = s.dir + "." + receiver(n) + "." + n.Name.Name
			}
			over(key, set.Position(n.End()).Line-set.Position(n.Pos()).Line+1, maxFunctionLines, "lines")
			over(key, n.Type.Params.NumFields(), maxParameters, "parameters")
		case *ast.CompositeLit:
			over(where(set, n), functionLiterals(n), maxFunctionLiterals, "function literals in one struct literal")
		}
	})
	found := shapes(all)
	for _, key := range slices.Sorted(maps.Keys(found)) {
		fields, methods := totals(found, key)
		over(key, fields, maxFields, "fields with those of its embedded parts")
		over(key, methods, maxMethods, "methods with those of its parts and wrappers")
	}
	lines := map[string]int{}
	for _, s := range all {
		if !isTest(s) {
			lines[s.dir] += s.lines
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(lines)) {
		over(dir, lines[dir], maxPackageLines, "lines of code")
	}
	for _, key := range slices.Sorted(maps.Keys(exceptions)) {
		if !needed[key] {
			t.Errorf("%s is within its budgets now: remove its line from exceptions", key)
		}
	}
}

// functionLiterals counts the fields of a struct literal that are function literals.
func functionLiterals(n *ast.CompositeLit) (count int) {
	for _, e := range n.Elts {
		pair, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		if _, ok := pair.Value.(*ast.FuncLit); ok {
			count++
		}
	}
	return count
}

func where(set *token.FileSet, n ast.Node) string {
	at := set.Position(n.Pos())
	return fmt.Sprintf("%s:%d", strings.TrimPrefix(at.Filename, "../"), at.Line)
}

// functionFields are the exported fields of exported structs that hold functions, each with its reason in one sentence.
// The clock (Now) and the dice (Rand), which tests replace, need none. What two parts share is a table, a value or a
// small interface instead. The test fails until a line that no field needs any more is gone.
var functionFields = map[string]string{
	// one effect that tests replace or watch
	"internal/agent.Options.Verbosity":              "It sets the level of the log of the whole process.",
	"internal/agent/serve.Options.Verbosity":        "It passes the agent's on to the HTTPS server.",
	"internal/api/https.About.SetVerbosity":         "It is the agent's, behind the route /debug/flags/v.",
	"internal/cluster/report.Options.Dropped":       "It lets tests wait until the API server no longer has a pod.",
	"internal/node.Config.Lookup":                   "It asks the DNS for the node's name.",
	"internal/node/shutdown.Options.Bus":            "It connects to the bus of logind.",
	"internal/pod/steps/image/garbage.Options.Disk": "It says how full the disk of the images is.",
	"internal/pod/steps/volume/csi.Options.Label":   "It asks SELinux for a label.",
	// rows of a list whose rows differ by what they do
	"internal/base/cgroupfile.Subject.Differs":         "Each kind of cgroup compares other files.",
	"internal/base/cgroupfile.Subject.Gone":            "Each kind of cgroup ends in another way.",
	"internal/base/cgroupfile.Subject.Repair":          "Each kind of cgroup is repaired in another way.",
	"internal/base/checkpoint.Format.Migrate":          "Each state file converts its own earlier versions.",
	"internal/model/object.Kind.New":                   "Each kind of object has its own type.",
	"internal/pod/admission.Rule.Check":                "Each rule is one decision.",
	"internal/pod/steps/container.Lifecycle.PostStop":  "Each part takes part in another moment of a container's life.",
	"internal/pod/steps/container.Lifecycle.PreCreate": "Each part takes part in another moment of a container's life.",
	"internal/pod/steps/container.Lifecycle.PreStart":  "Each part takes part in another moment of a container's life.",
	"internal/pod/steps/container.Lifecycle.PreStop":   "Each part takes part in another moment of a container's life.",
	"internal/pod/worker.Step.Setup":                   "Each step is one effect on the node.",
	"internal/pod/worker.Step.Teardown":                "Each step is undone in another way.",
	// inputs that a computation asks for, because they are costly and rarely needed
	"internal/base/archive.Target.Dir":       "Only a stream with a directory opens a place for one.",
	"internal/base/archive.Target.Expect":    "Only a stream shows how many bytes it has.",
	"internal/base/archive.Target.File":      "Only a stream with one file opens a place for it.",
	"internal/pod/admission.In.Allot":        "Only the last rule tries what the pod would get beside other pods.",
	"internal/pod/admission.In.RuntimeClass": "Only a pod that names a class needs it.",
	"internal/pod/admission.In.Supplied":     "Only a pod that names objects needs it.",
	"internal/pod/podstatus.Input.Devices":   "Only a container that holds devices has their health.",
	"internal/pod/podstatus.Input.Starting":  "Only a container that runs can have a handler that has not returned.",
	"internal/pod/podstatus.Input.Waiting":   "Only a container that does not run has a reason for it.",
}

// functionFieldsOf returns the exported fields with a function, or with several, of exported structs in packages that
// are not for tests: as folder.Type.Field. It leaves out Now and Rand.
func functionFieldsOf(all []source) map[string]bool {
	functions := map[string]bool{} // the named types
	each(all, func(s source, n ast.Node) {
		if t, ok := n.(*ast.TypeSpec); ok {
			if _, ok := t.Type.(*ast.FuncType); ok {
				functions[s.dir+"."+t.Name.Name] = true
			}
		}
	})
	found := map[string]bool{}
	each(all, func(s source, n ast.Node) {
		spec, ok := n.(*ast.TypeSpec)
		forTests := strings.HasSuffix(s.dir, "test") || strings.Contains(s.dir, "test/")
		if !ok || !spec.Name.IsExported() || !within(s.dir, "internal") || forTests {
			return
		}
		fields, ok := spec.Type.(*ast.StructType)
		if !ok {
			return
		}
		for _, f := range fields.Fields.List {
			if !holdsFunction(f.Type, s.dir, functions) {
				continue
			}
			for _, name := range f.Names {
				if name.IsExported() && name.Name != "Now" && name.Name != "Rand" {
					found[s.dir+"."+spec.Name.Name+"."+name.Name] = true
				}
			}
		}
	})
	return found
}

// holdsFunction reports whether a type is a function, or a slice or a map of functions.
func holdsFunction(t ast.Expr, dir string, functions map[string]bool) bool {
	switch t := t.(type) {
	case *ast.FuncType:
		return true
	case *ast.ArrayType:
		return holdsFunction(t.Elt, dir, functions)
	case *ast.MapType:
		return holdsFunction(t.Value, dir, functions)
	case *ast.Ident:
		return functions[dir+"."+t.Name]
	}
	return false
}

func TestBudgetsOfFunctionValues(t *testing.T) {
	all, _ := load(t)
	found := functionFieldsOf(all)
	for _, key := range slices.Sorted(maps.Keys(found)) {
		if functionFields[key] == "" {
			t.Errorf("%s is a function: share a table, a value or a small interface instead", key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(functionFields)) {
		if !found[key] {
			t.Errorf("%s is no field with a function now: remove its line from functionFields", key)
		}
	}
}

// The budgets measure what they mean: these types would pass if only their own lines counted.
func TestBudgetsCountPartsAndWrappers(t *testing.T) {
	found := map[string]*shape{
		"p.Agent":   {fields: 2, methods: 3, parts: []string{"p.records"}},
		"p.records": {fields: 5, methods: 1}, "p.images": {fields: 1, methods: 7, wraps: "p.Agent"},
	}
	if fields, methods := totals(found, "p.Agent"); fields != 7 || methods != 11 {
		t.Errorf("Agent has %d fields and %d methods, want 7 and 11", fields, methods)
	}
	x := strings.Repeat("x", 116)
	text := "\t" + x + "\n\t" + x + "x\n\n" + x + " https://example.com\n" + x + "12345 https://example.com\n"
	if got := tooLong(text); !slices.Equal(got, []int{2, 5}) {
		t.Errorf("lines %v are too long, want 2 and 5", got)
	}
}

// receiver is the name of the type that a method belongs to.
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
