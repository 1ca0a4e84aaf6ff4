package driver

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/util/version"
)

func TestNegotiate(t *testing.T) {
	one := &Driver{Endpoint: "/one.sock", version: version.MustParseGeneric("1.1.0")}
	const refused = "another driver with the same name is already registered, at /one.sock with version 1.1.0: " +
		"a driver that replaces it needs a higher version than "
	for name, test := range map[string]struct {
		previous  *Driver
		versions  []string
		want, err string
	}{
		"first of its name": {nil, []string{"1.0.0"}, "1.0.0", ""},
		"highest version":   {nil, []string{"0.3.0", "1.0.0", "1.2.0", "2.0.0"}, "1.2.0", ""},
		"no version 1": {nil, []string{"0.3.0", "2.0.0"}, "",
			`the CSI driver supports versions ["0.3.0" "2.0.0"] of CSI, and this agent version 1`},
		"no versions":      {nil, nil, "", `the CSI driver supports versions [] of CSI, and this agent version 1`},
		"a higher version": {one, []string{"1.0.0", "1.2.0"}, "1.2.0", ""},
		"a lower version":  {one, []string{"1.0.0"}, "", refused + "1.0.0"},
		"the same version": {one, []string{"1.1.0"}, "", refused + "1.1.0"},
	} {
		got, err := negotiate(test.previous, test.versions)
		if text := fmt.Sprint(err); err == nil && got.String() != test.want || err != nil && text != test.err {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
