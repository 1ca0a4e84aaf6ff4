package podstatus

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// Feature gates hide parts of a status.
func TestHiddenParts(t *testing.T) {
	in := Input{Pod: newPod(nil, "a"), Observed: observed(running("a", "a1")), Node: node, Now: now,
		Devices: func(string) []corev1.ResourceStatus {
			return []corev1.ResourceStatus{{Name: "claim:gpu",
				Resources: []corev1.ResourceHealth{{ResourceID: "x", Message: new("too hot")}}}}
		}}
	for name, c := range map[string]struct {
		hidden    Hidden
		condition bool
		message   *string
		health    bool
	}{
		"nothing":   {Hidden{}, true, new("too hot"), true},
		"condition": {Hidden{StartCondition: true}, false, new("too hot"), true},
		"messages":  {Hidden{ResourceHealthMessage: true}, true, nil, true},
		"health":    {Hidden{ResourceHealth: true}, true, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			in.Node.Hidden = c.hidden
			s := Compute(in)
			shown := false
			for _, got := range s.Conditions {
				shown = shown || got.Type == corev1.PodReadyToStartContainers
			}
			if shown != c.condition {
				t.Errorf("PodReadyToStartContainers is shown: %t, want %t", shown, c.condition)
			}
			all := s.ContainerStatuses[0].AllocatedResourcesStatus
			if (len(all) > 0) != c.health {
				t.Fatalf("health %v", all)
			}
			if c.health {
				if diff := cmp.Diff(c.message, all[0].Resources[0].Message); diff != "" {
					t.Errorf("message (-want +got):\n%s", diff)
				}
			}
		})
	}
}
