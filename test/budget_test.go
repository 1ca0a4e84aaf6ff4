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
	// maxFunctionOptions is how many options of all packages together may be functions. Such an option is for one
	// effect that tests replace. The clock (Now) and the dice (Rand) do not count. The number only shrinks: lower it
	// when options go.
	maxFunctionOptions = 7
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
}

// debts lists the types and packages that were over their budget when the budgets began to count wrappers and embedded
// parts. The number is the limit for each of them until it is within its budget. Lower the number
// after a split, and delete the line when the budget is met. A number never grows.
var debts = map[string]int{}

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

// beingChanged has files that others are changing now, with the number of their lines that are too long. A number never
// grows.
var beingChanged = map[string]int{"test/chaos_test.go": 3, "docs/robustness.md": 3}

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
		if numbers := tooLong(texts[name]); len(numbers) > beingChanged[name] {
			t.Errorf("%s: lines %v are longer than %d columns: wrap them", name, numbers, columns)
		}
	}
}

func TestBudgets(t *testing.T) {
	all, set := load(t)
	needed := map[string]bool{}
	over := func(key string, got, most int, what string) {
		kind, _, _ := strings.Cut(what, " ")
		if allowed, owed := debts[key+" "+kind]; owed {
			if got <= most {
				t.Errorf("%s is within its budget of %d %s now: remove its line from debts", key, most, what)
			}
			most = allowed
		}
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

// functionOptions returns the fields with a function in structs named Options or Config, as folder.Type.Field, sorted.
// It leaves out Now and Rand, the clock and the dice that tests replace.
func functionOptions(all []source) []string {
	var found []string
	each(all, func(s source, n ast.Node) {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || !strings.HasSuffix(spec.Name.Name, "Options") && !strings.HasSuffix(spec.Name.Name, "Config") {
			return
		}
		fields, ok := spec.Type.(*ast.StructType)
		if !ok {
			return
		}
		for _, f := range fields.Fields.List {
			if _, ok := f.Type.(*ast.FuncType); !ok {
				continue
			}
			for _, name := range f.Names {
				if name.Name != "Now" && name.Name != "Rand" {
					found = append(found, s.dir+"."+spec.Name.Name+"."+name.Name)
				}
			}
		}
	})
	slices.Sort(found)
	return found
}

func TestFunctionValuedOptions(t *testing.T) {
	all, _ := load(t)
	found := functionOptions(all)
	t.Logf("%d function-valued options:\n%s", len(found), strings.Join(found, "\n"))
	if len(found) > maxFunctionOptions {
		t.Errorf("%d function-valued options, the most is %d: share a table, a value or a small interface instead"+
			" (-v lists them)", len(found), maxFunctionOptions)
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
