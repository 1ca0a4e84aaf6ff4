package pod

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestExpandCommand(t *testing.T) {
	env := []corev1.EnvVar{
		{Name: "A", Value: "1"}, {Name: "B", Value: "$(A)"}, {Name: "A", Value: "2"},
		{Name: "POD",
			ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
	}
	got := ExpandCommand([]string{"/check", "$(A)", "$(B)", "<$(POD)>", "$(MISSING)"}, env)
	if diff := cmp.Diff([]string{"/check", "2", "$(A)", "<>", "$(MISSING)"}, got); diff != "" {
		t.Error(diff)
	}
}

func FuzzExpand(f *testing.F) {
	for _, s := range []string{"", "$", "$$", "$(A)", "$$(A)", "$(B", "x$(A)y$(B)$", "$($(A))"} {
		f.Add(s)
	}
	unknown := func(string) (string, bool) { return "", false }
	f.Fuzz(func(t *testing.T, s string) {
		got := Expand(s, unknown)
		if !strings.Contains(s, "$$") && got != s || len(got) > len(s) {
			t.Errorf("%q became %q", s, got)
		}
	})
}
