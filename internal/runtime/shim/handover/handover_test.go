package handover

import (
	"slices"
	"testing"
)

// The program that continues closes what it has of the one before.
func TestArgumentsDropInheritedDescriptors(t *testing.T) {
	got := Arguments([]string{"/bin/shim", "serve", "-tasks=/t", "-ready=3", "-outputs=9", "-events=/e", "c1", "c2"},
		[]int{7, 8})
	if want := []string{"/bin/shim", "serve", "-tasks=/t", "-events=/e", "-outputs=7,8"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
