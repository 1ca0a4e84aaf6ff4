package kubeletfile

import (
	"os"
	"strings"
	"testing"
)

// docs/takeover.md names each field and gate that works otherwise than in a kubelet of the followed version.
func TestTakeoverPageNamesFieldsAndGates(t *testing.T) {
	text, err := os.ReadFile("../../../docs/takeover.md")
	if err != nil {
		t.Fatal(err)
	}
	var fields []string
	for _, paths := range withoutEffect() {
		fields = append(fields, paths...)
	}
	for path := range limited() {
		fields = append(fields, path)
	}
	for _, path := range fields {
		name, _, _ := strings.Cut(path, ".")
		if name == "defaultPodSysctls" { // newer than the followed version
			continue
		}
		if !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("the page does not name the field %s", name)
		}
	}
	for gate := range Gates() {
		if !strings.Contains(string(text), gate) {
			t.Errorf("the page does not name the gate %s", gate)
		}
	}
}
