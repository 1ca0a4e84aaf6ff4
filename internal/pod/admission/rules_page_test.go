package admission

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRulesPage keeps the table of docs/admission.md true.
func TestRulesPage(t *testing.T) {
	const file, begin, end = "../../../docs/admission.md", "<!-- rules -->\n", "<!-- end -->"
	var table strings.Builder
	table.WriteString("| rule | reasons | what it does |\n|---|---|---|\n")
	for _, r := range Rules() {
		fmt.Fprintf(&table, "| %s | %s | %s |\n", r.Name, strings.Join(r.Reasons, ", "), r.Doc)
	}
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(page), begin)
	got, after, ok := strings.Cut(rest, end)
	if !ok {
		t.Fatalf("%s has no place for the rules", file)
	}
	if *update {
		if err := os.WriteFile(file, []byte(before+begin+table.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(table.String(), got); d != "" {
		t.Errorf(
			"%s is not what the rules say of themselves: run go test ./internal/pod/admission -run TestRulesPage "+
				"-update (-want +got):\n%s", file, d)
	}
}

// TestReasonsAreCounted has every rejection counted under its own reason, but for
// those whose names users choose.
func TestReasonsAreCounted(t *testing.T) {
	for _, r := range Rules() {
		for _, reason := range r.Reasons {
			switch got := MetricReason(reason); {
			case strings.HasPrefix(reason, "OutOf*"):
				if got != "OutOfExtendedResources" {
					t.Errorf("%s is counted as %s", reason, got)
				}
			case got != reason && rejects(reason):
				t.Errorf("%s is counted as %s", reason, got)
			}
		}
	}
	for reason, want := range map[string]string{"OutOfexample.com/gpu": "OutOfExtendedResources",
		"OutOfhugepages-2Mi": "OutOfExtendedResources", "Whatever": "Other"} {
		if got := MetricReason(reason); got != want {
			t.Errorf("%s is counted as %s, want %s", reason, got, want)
		}
	}
}

// rejects reports whether a reason is one of a rejection: what blocks a pod or has it wait is not counted.
func rejects(reason string) bool {
	switch reason {
	case AppArmor, SELinuxNotSupported, SupplementalGroupsPolicyNotSupported, UserNamespacesNotSupported, SameName,
		ManifestObject:
		return false
	}
	return true
}
