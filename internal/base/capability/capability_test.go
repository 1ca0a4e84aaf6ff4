package capability

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestLackingNamesOnlyWhatAnAgentNeeds(t *testing.T) {
	const all = Set(1)<<(unix.CAP_LAST_CAP+1) - 1
	for name, test := range map[string]struct {
		set  Set
		want []string
	}{
		"all":                      {all, nil},
		"without an unusual one":   {all &^ (1 << unix.CAP_SYS_RESOURCE), nil},
		"without one that matters": {all &^ (1 << unix.CAP_SYS_PTRACE), []string{"CAP_SYS_PTRACE"}},
	} {
		if d := cmp.Diff(test.want, test.set.Lacking()); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}
