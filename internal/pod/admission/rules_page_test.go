package admission

import (
	"fmt"
	"strings"
	"testing"

	"github.com/berth-run/berth/internal/base/golden"
)

// TestRulesPage keeps the table of docs/admission.md true.
func TestRulesPage(t *testing.T) {
	var table strings.Builder
	table.WriteString("| rule | reasons | what it does |\n|---|---|---|\n")
	for _, r := range Rules() {
		fmt.Fprintf(&table, "| %s | %s | %s |\n", r.Name, strings.Join(r.Reasons, ", "), r.Doc)
	}
	golden.Section(t, "../../../docs/admission.md", "<!-- rules -->\n", "<!-- end -->", table.String())
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
	case AppArmor, SELinuxNotSupported, SupplementalGroupsPolicyNotSupported, UserNamespacesNotSupported,
		PrivilegedNotSupported, ProcMountNotSupported, SameName, NodePressure, ManifestObject:
		return false
	}
	return true
}
