package answer

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestStatusKeepsTheTextAroundAnError(t *testing.T) {
	err := fmt.Errorf("read log: %w", NotFound(types.NamespacedName{Namespace: "default", Name: "web"}))
	st := StatusOf(err)
	if want := `read log: pods "default/web" not found`; st.Message != want || st.Code != 404 ||
		len(st.Details.Causes) != 1 {
		t.Errorf("%+v, want the message %s", st, want)
	}
	if st := StatusOf(errors.New("disk full")); st.Message != "disk full" || st.Code != 500 {
		t.Errorf("%+v", st)
	}
}

// locals are the packages that answer requests of the local API.
var locals = []string{"../containers", "../files", "../limit", "../live", "../logs", "../nodeinfo", "../past",
	"../query", "../selector", "../server", "../stream", "../../agent/local", "../../ui"}

// makers are the functions that make a refusal, and whether their last parameter is the next step. Every other refusal
// must be an argument of Next.
var makers = map[string]bool{"answer.BadRequest": true, "answer.Invalid": true, "answer.Failure": false,
	"apierrors.NewConflict": false, "apierrors.NewNotFound": false, "apierrors.NewAlreadyExists": false,
	"apierrors.NewResourceExpired": false, "apierrors.NewTooManyRequests": false,
	"apierrors.NewServiceUnavailable": false, "apierrors.NewForbidden": false}

// given are refusals whose next step the caller adds.
var given = []string{
	"../../agent/local/pods.go: apierrors.NewAlreadyExists", // server: leases.apply
	"../../agent/local/pods.go: apierrors.NewConflict",      // server: changeRoutes.remove
}

// Each refusal of the local API says what to do next.
func TestRefusalsHaveANextStep(t *testing.T) {
	found := 0
	for _, dir := range locals {
		paths, err := filepath.Glob(dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			explained := map[ast.Expr]bool{}
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				name := called(call)
				if name == "answer.Next" {
					explained[call.Args[0]] = true
				}
				last, isMaker := makers[name]
				if !isMaker {
					return true
				}
				found++
				text, literal := call.Args[len(call.Args)-1].(*ast.BasicLit)
				switch {
				case last && literal && text.Value == `""`, !last && !explained[call] &&
					!slices.Contains(given, path+": "+name):
					t.Errorf("%s: a call of %s has no next step", path, name)
				}
				return true
			})
		}
	}
	if found < 50 {
		t.Errorf("only %d refusals were found", found)
	}
}

// called returns the name of a called function of another package.
func called(call *ast.CallExpr) string {
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	from, ok := f.X.(*ast.Ident)
	if !ok {
		return ""
	}
	return from.Name + "." + f.Sel.Name
}
