package powercut

import (
	"strings"
	"testing"
)

func TestLedgerWantsConfirmedChangesAndAllowsBegunOnes(t *testing.T) {
	ledger := Ledger{}
	for _, line := range []Line{
		{Begin: true, Name: "pod/a", Value: "1"}, {Confirm: true, Name: "pod/a", Value: "1"},
		{Begin: true, Name: "pod/b", Value: "2"},
		{Begin: true, Name: "pod/c", Value: "3"}, {Confirm: true, Name: "pod/c", Value: "3"},
		{Begin: true, Name: "pod/c"}, {Confirm: true, Name: "pod/c"},
		{Begin: true, Name: "pod/d", Value: "4"}, {Confirm: true, Name: "pod/d", Value: "4"},
		{Begin: true, Name: "pod/d", Value: "5"},
	} {
		read, ok := Parse("[ 1.2] a kernel's word " + line.String())
		if !ok {
			t.Fatalf("cannot read %s", line)
		}
		ledger.Read(read)
	}
	tests := []struct {
		name  string
		found map[string]string
		want  string
	}{
		{"all old", map[string]string{"pod/a": "1", "pod/d": "4"}, ""},
		{"all new", map[string]string{"pod/a": "1", "pod/b": "2", "pod/d": "5"}, ""},
		{"a confirmed one is lost", map[string]string{"pod/d": "5"}, `pod/a is "", want one of ["1"]`},
		{"a begun one took the old away", map[string]string{"pod/a": "1"}, `pod/d is "", want one of ["4" "5"]`},
		{"a deleted one is back", map[string]string{"pod/a": "1", "pod/c": "3", "pod/d": "4"},
			`pod/c is "3", want one of [""]`},
		{"an unknown one", map[string]string{"pod/a": "1", "pod/d": "4", "pod/x": "9"},
			`pod/x is "9", but nobody made it`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := ledger.Check(tt.found)
			if (err == nil) != (tt.want == "") || err != nil && !strings.HasSuffix(err.Error(), ": "+tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestParseRefusesPartsOfLines(t *testing.T) {
	line := Line{Confirm: true, Name: "pod/a", Value: "1"}.String()
	for i := range len(line) {
		if l, ok := Parse(line[:i]); ok {
			t.Errorf("%q was read as %+v", line[:i], l)
		}
	}
}
