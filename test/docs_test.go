package test

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	diff "github.com/google/go-cmp/cmp"
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
	for _, pattern := range []string{"docs/*.md", "docs/zh/*.md", "docs/adr/*.md", "bench/*.md", "examples/*.md",
		"web/*.md"} {
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
		if page != index && !slices.Contains(targets[index], page) {
			t.Errorf("%s does not list %s", index, page)
		}
	}
}

// place is a folder or a file of the code between backquotes.
var place = regexp.MustCompile("`([a-z]+(?:/[a-z0-9_]+)+(?:\\.go)?)`")

// The folders in ARCHITECTURE.md exist, most of them below internal.
func TestDocsArchitectureNamesFolders(t *testing.T) {
	text, err := os.ReadFile("../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	found := place.FindAllStringSubmatch(string(text), -1)
	if len(found) < 30 {
		t.Errorf("only %d folders found", len(found))
	}
	for _, m := range found {
		_, err := os.Stat(filepath.Join("../internal", m[1]))
		if _, err2 := os.Stat(filepath.Join("..", m[1])); err != nil && err2 != nil {
			t.Errorf("ARCHITECTURE.md names %s, which does not exist", m[1])
		}
	}
}

// The table of what is known names each package that makes a table, or the folder that it is in.
func TestDocsArchitectureNamesTables(t *testing.T) {
	text, err := os.ReadFile("../ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, known, _ := strings.Cut(string(text), "\n## What is known, and who writes it\n")
	known, _, _ = strings.Cut(known, "\n## ")
	all, _ := load(t)
	tables := 0
	for _, s := range all {
		if isTest(s) || isCheck(s.dir) || strings.HasSuffix(s.dir, "test") || !strings.Contains(s.text, "store.New[") {
			continue
		}
		tables++
		if !slices.ContainsFunc(place.FindAllStringSubmatch(known, -1), func(m []string) bool {
			return within(s.dir, "internal/"+m[1])
		}) {
			t.Errorf("%s makes a table that ARCHITECTURE.md does not list with its writer", s.dir)
		}
	}
	if tables < 8 {
		t.Errorf("only %d packages with tables found", tables)
	}
}

var (
	heading = regexp.MustCompile(`(?m)^(#+) `)
	block   = regexp.MustCompile("(?s)```([a-z ]*)\n(.*?)```")
	remark  = regexp.MustCompile(`(?m)(?:^|[ \t]+)#.*$`)
)

// originalOf returns the English page of a translated page, and "" for every other page.
func originalOf(page string) string {
	if original, ok := strings.CutSuffix(page, ".zh-CN.md"); ok {
		return original + ".md"
	}
	if original, ok := strings.CutPrefix(page, "docs/zh/"); ok {
		return "docs/" + original
	}
	return ""
}

// outline returns the parts that a page and its translation must share: the levels of the headings, the blocks of
// commands and output without remarks, and the pages and files that links lead to. It leaves out the link from a page
// to its translation, and back.
func outline(page, text string) (parts []string) {
	for _, m := range block.FindAllStringSubmatch(text, -1) {
		parts = append(parts, "block: "+m[1]+"\n"+remark.ReplaceAllString(m[2], ""))
	}
	text = code.ReplaceAllString(text, "")
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		parts = append(parts, "heading: "+m[1])
	}
	self, targets := cmp.Or(originalOf(page), page), []string{}
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		target := m[1]
		if !strings.Contains(target, "://") {
			target = filepath.Join(filepath.Dir(page), target)
			target = cmp.Or(originalOf(target), target)
		}
		if target != self {
			targets = append(targets, "link: "+target)
		}
	}
	slices.Sort(targets) // another language may have another order of words
	return append(parts, targets...)
}

// A translated page has the headings, the commands and the links of the English one.
func TestDocsTranslationsAreInStep(t *testing.T) {
	found := 0
	for _, page := range pages(t) {
		original := originalOf(page)
		if original == "" {
			continue
		}
		found++
		var outlines [2][]string
		for i, name := range []string{original, page} {
			text, err := os.ReadFile(filepath.Join("..", name))
			if err != nil {
				t.Fatal(err)
			}
			outlines[i] = outline(name, string(text))
		}
		if d := diff.Diff(outlines[0], outlines[1]); d != "" {
			t.Errorf("%s and %s differ (-English +translation):\n%s", original, page, d)
		}
	}
	if found == 0 {
		t.Error("no translated page was found")
	}
}
