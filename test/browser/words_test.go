package browser

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	comment  = regexp.MustCompile(`(?m)(^|\s)//.*$`)
	imported = regexp.MustCompile(`(?m)^import .*$`)
	call     = regexp.MustCompile(`\bt\(([^()]*"[^()]*)\)`)
	lists    = regexp.MustCompile(`(?m)^(?:export const (?:parts|sections)|  const columns.*) = (.*\[.*\])`)
	quoted   = regexp.MustCompile(`"((?:[^"\\\n]|\\.)*)"`)
	// between is the text between two elements. An arrow or a comparison does not end an element.
	between = regexp.MustCompile(`[\w"'}/-]>([^<>{}=();` + "`" + `"&|]*\pL{2}[^<>{}=();` + "`" + `"&|]*)[<{]`)
	// child is an expression between two elements, without braces in it.
	child    = regexp.MustCompile(`(?:[^=]>|\})\s*\{([^{}]*)\}`)
	compared = regexp.MustCompile(`[!=]== "[^"]*"|"[^"]*" [!=]==`)
	template = regexp.MustCompile("`((?:[^`\\\\]|\\\\.)*)`")
	inserted = regexp.MustCompile(`\$\{[^}]*\}`)
	letters  = regexp.MustCompile(`\pL{2}`)
	prose    = regexp.MustCompile(`\pL\pL+ \pL\pL+|^\s*[A-Z][a-z]+[ ,.:]?`)
	// attribute is an attribute that nobody reads.
	attribute = regexp.MustCompile(`\b(?:class|role|id|href|type|key|d|viewBox)="[^"]*"`)
)

// same are the texts that are the same in every language: names, units, and words of Kubernetes that "berth get" prints
// as well.
var same = []string{"Berth", "English", "中文", "CPU", "CPU ", "NUMA", "p50", "p99", "KiB", "MiB", " GiB", " (ro)",
	"Pending", "Terminating", "Stopped", "Signal:", "ExitCode:", "Init:", "PodInitializing", "ContainerCreating",
	"PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady", "ConfigMap", "Secret",
	"PersistentVolumeClaim"}

// code are the literals that look like texts, and that no person sees.
var code = []string{"Content-Type", "ui-monospace, monospace", "input, button", "hint", "failed"}

// texts returns the texts that a source shows, and the texts in elements, which it shows without a call of t().
func texts(source string) (all, raw []string) {
	source = imported.ReplaceAllString(comment.ReplaceAllString(source, ""), "")
	add := func(word string) { all = append(all, word) }
	for _, m := range append(call.FindAllStringSubmatch(source, -1), lists.FindAllStringSubmatch(source, -1)...) {
		for _, q := range quoted.FindAllStringSubmatch(m[1], -1) {
			if strings.TrimSpace(q[1]) != "" && !strings.HasPrefix(q[1], " ") { // a part of a text that is put together
				add(q[1])
			}
		}
	}
	source = compared.ReplaceAllString(attribute.ReplaceAllString(call.ReplaceAllString(source, "t"), `a=""`), "")
	for _, m := range between.FindAllStringSubmatch(source, -1) {
		if text := strings.Join(strings.Fields(m[1]), " "); !strings.HasPrefix(text, ":") { // the rest of a condition
			raw = append(raw, text)
		}
	}
	for _, m := range child.FindAllStringSubmatch(source, -1) {
		for _, q := range quoted.FindAllStringSubmatch(m[1], -1) {
			if letters.MatchString(q[1]) {
				raw = append(raw, q[1])
			}
		}
	}
	for _, q := range quoted.FindAllStringSubmatch(source, -1) {
		if prose.MatchString(q[1]) {
			add(q[1])
		}
	}
	for _, m := range template.FindAllStringSubmatch(source, -1) {
		text := inserted.ReplaceAllString(m[1], "")
		path := strings.HasPrefix(text, "/") || strings.HasPrefix(text, "#/")
		if !path && prose.MatchString(text) {
			add(text)
		}
	}
	return all, raw
}

// untranslated returns the texts of the page's sources that have no Chinese, and how many texts there are.
func untranslated(t *testing.T) (missing []string, found int) {
	t.Helper()
	words, err := os.ReadFile("../../web/src/words.ts")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../../web/src/*.ts*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "words.ts") || strings.HasSuffix(file, ".d.ts") {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all, raw := texts(string(source))
		for i, text := range slices.Concat(all, raw) {
			if slices.Contains(code, text) {
				continue
			}
			found++
			translated := i < len(all) && strings.Contains(string(words), `"`+text+`":`)
			if !translated && !slices.Contains(same, text) {
				missing = append(missing, filepath.Base(file)+": "+text)
			}
		}
	}
	return missing, found
}

// The words of the page have a translation.
func TestEveryTextIsTranslated(t *testing.T) {
	missing, found := untranslated(t)
	if found < 200 {
		t.Errorf("found only %d texts", found)
	}
	for _, text := range missing {
		t.Errorf("no Chinese in web/src/words.ts, or no call of t(), for %q", text)
	}
}

// A text is found wherever a source shows it: in an element, in a literal, in a template, in a call of t().
func TestTextsAreFoundOutsideOfCalls(t *testing.T) {
	source := "import { x } from \"./Some file\";\n" + `// A comment "Not shown".
const a = s.reason ?? "Terminated", b = "Running " + t("since"), c = "connection closed"; // "Not shown"
const d = <th class="Not shown">requests / limits</th>, e = <b>{sidecar ? "sidecar" : kind}</b>;
if (x === "Not shown" && y > 1) f(new Map<string, Row>(), "GET", "/api/pods", () => z);
` + "const g = `${n} pods are left`, h = `/api/Pods/${n}`;\n"
	got, raw := texts(source)
	slices.Sort(got)
	want := []string{" pods are left", "Running ", "Terminated", "connection closed", "since"}
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	if want := []string{"requests / limits", "sidecar"}; !slices.Equal(raw, want) {
		t.Errorf("found %q in elements, want %q", raw, want)
	}
}
