package former

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

func TestOwnedSparesPodsOfOtherProgramsInASharedRuntime(t *testing.T) {
	box := func(id, uid string) *runtimeapi.PodSandbox {
		return &runtimeapi.PodSandbox{Id: id, Labels: map[string]string{pod.LabelPodUID: uid}}
	}
	all := []*runtimeapi.PodSandbox{box("2b", "b"), box("1a", "a"), box("1b", "b"), {Id: "unlabelled"}}
	for name, c := range map[string]struct {
		shared bool
		boxes  []string
		pods   []types.UID
	}{
		"a shared runtime": {true, []string{"2b", "1b"}, []types.UID{"b", "c"}},
		"an own runtime":   {false, []string{"2b", "1a", "1b", "unlabelled"}, []types.UID{"a", "b", "c"}},
	} {
		boxes, pods := owned(all, []types.UID{"c", "b", "c"}, c.shared)
		var ids []string
		for _, b := range boxes {
			ids = append(ids, b.Id)
		}
		if d := cmp.Diff(c.boxes, ids) + cmp.Diff(c.pods, pods); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}
