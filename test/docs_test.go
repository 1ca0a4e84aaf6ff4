package test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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

// pages returns the paths of all pages.
func pages(t *testing.T) []string {
	t.Helper()
	all := []string{"README.md", "README.zh-CN.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md",
		"STYLE.md"}
	for _, pattern := range []string{"docs/*.md", "docs/adr/*.md", "bench/*.md"} {
		more, err := filepath.Glob(filepath.Join("..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, page := range more {
			all = append(all, strings.TrimPrefix(page, "../"))
		}
	}
	return all
}

func TestDocsLinksLeadToFiles(t *testing.T) {
	const index = "docs/README.md"
	all, targets := pages(t), map[string][]string{}
	for _, page := range all {
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
	for _, page := range all {
		if filepath.Dir(page) == "docs" && page != index && !slices.Contains(targets[index], page) {
			t.Errorf("%s does not list %s", index, page)
		}
	}
}

var (
	heading = regexp.MustCompile(`(?m)^(#+) `)
	block   = regexp.MustCompile("(?s)```[a-z]*\n(.*?)```")
	remark  = regexp.MustCompile(`(?m)\s+#.*$`)
)

// outline returns what a page and its translation have in common: the levels of the headings, the blocks of commands
// and output without remarks, and the files that links lead to, without the pages themselves.
func outline(page, text string) (parts []string) {
	for _, m := range block.FindAllStringSubmatch(text, -1) {
		parts = append(parts, "block: "+remark.ReplaceAllString(m[1], ""))
	}
	text = code.ReplaceAllString(text, "")
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		parts = append(parts, "heading: "+m[1])
	}
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		if strings.TrimSuffix(translated.ReplaceAllString(m[1], ".md"), ".md") != strings.TrimSuffix(page, ".md") {
			parts = append(parts, "link: "+m[1])
		}
	}
	return parts
}

var translated = regexp.MustCompile(`\.zh-CN\.md$`)

// A translated page has the headings, the commands and the links of the English one.
func TestDocsTranslationsAreInStep(t *testing.T) {
	found := 0
	for _, page := range pages(t) {
		if !translated.MatchString(page) {
			continue
		}
		found++
		original := translated.ReplaceAllString(page, ".md")
		var outlines [2][]string
		for i, name := range []string{original, page} {
			text, err := os.ReadFile(filepath.Join("..", name))
			if err != nil {
				t.Fatal(err)
			}
			outlines[i] = outline(filepath.Base(original), string(text))
		}
		if diff := cmp.Diff(outlines[0], outlines[1]); diff != "" {
			t.Errorf("%s and %s differ (-English +translation):\n%s", original, page, diff)
		}
	}
	if found == 0 {
		t.Error("no translated page was found")
	}
}
