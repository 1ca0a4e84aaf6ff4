package browser

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// untranslated returns the texts of the page's sources that have no Chinese, and how many texts there are. A text is
// the argument of t(), a column, a part or a section.
func untranslated(t *testing.T) (missing []string, found int) {
	t.Helper()
	words, err := os.ReadFile("../../web/src/words.ts")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../../web/src/*.tsx")
	if err != nil {
		t.Fatal(err)
	}
	call := regexp.MustCompile(`\bt\(([^()]*"[^()]*)\)`)
	lists := regexp.MustCompile(`(?m)^(?:export const (?:parts|sections)|  const columns.*) = (.*\[.*\])`)
	quoted := regexp.MustCompile(`"((?:[^"\\]|\\.)+)"`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range append(call.FindAllSubmatch(text, -1), lists.FindAllSubmatch(text, -1)...) {
			for _, q := range quoted.FindAllSubmatch(m[1], -1) {
				word := string(q[1])
				if strings.TrimSpace(word) == "" || strings.HasPrefix(word, " ") {
					continue // a part of a text that is put together
				}
				if found++; !strings.Contains(string(words), `"`+word+`":`) {
					missing = append(missing, word)
				}
			}
		}
	}
	return missing, found
}
