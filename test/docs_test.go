package test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The first comment of a script ends with a line that names the page which describes its behaviour.
var pageOfScript = regexp.MustCompile(`(?m)\A(?:# .*\n)+# See (\S+)\.$`)

// scriptFiles lists all end-to-end scripts.
func scriptFiles(t *testing.T) (scripts []string) {
	t.Helper()
	for _, pattern := range []string{"script/*.txtar", "e2e/*.txtar", "e2e/*/*.txtar"} {
		more, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		scripts = append(scripts, more...)
	}
	if len(scripts) < 90 {
		t.Fatalf("only %d scripts found", len(scripts))
	}
	return scripts
}

func TestDocsScriptsNameTheirPage(t *testing.T) {
	for _, script := range scriptFiles(t) {
		text, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		page := pageOfScript.FindStringSubmatch(string(text))
		if page == nil {
			t.Errorf("%s: its first lines must say which behaviour it shows, and end with a line # See docs/PAGE.md.",
				script)
			continue
		}
		if _, err := os.Stat(filepath.Join("..", page[1])); err != nil {
			t.Errorf("%s: names a page that does not exist: %v", script, err)
		}
	}
}

var (
	link = regexp.MustCompile(`\]\(([^)#\s]+)(?:#[^)]*)?\)`)
	code = regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")
)

func TestDocsLinksLeadToFiles(t *testing.T) {
	const index = "docs/README.md"
	pages := []string{"README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "STYLE.md"}
	for _, pattern := range []string{"docs/*.md", "docs/adr/*.md", "bench/*.md"} {
		more, err := filepath.Glob(filepath.Join("..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range more {
			pages = append(pages, strings.TrimPrefix(page, "../"))
		}
	}
	targets := map[string][]string{}
	for _, page := range pages {
		text, err := os.ReadFile(filepath.Join("..", page))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(string(text), ""), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			target := filepath.Join(filepath.Dir(page), m[1])
			targets[page] = append(targets[page], target)
			if _, err := os.Stat(filepath.Join("..", target)); err != nil {
				t.Errorf("%s: links to a file that does not exist: %v", page, err)
			}
		}
	}
	for _, page := range pages {
		if filepath.Dir(page) == "docs" && page != index && !slices.Contains(targets[index], page) {
			t.Errorf("%s does not list %s", index, page)
		}
	}
}
