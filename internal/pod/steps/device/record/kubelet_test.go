package record

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/node/resource/device"
	"github.com/berth-run/berth/internal/node/resource/topology"
	kubelet "github.com/berth-run/berth/internal/pod/steps/device/checkpoint"
	"github.com/berth-run/berth/internal/pod/steps/device/record/recordtest"
)

const gpu corev1.ResourceName = "example.com/gpu"

func TestReadKubelet(t *testing.T) {
	answer := func(nodes map[device.ID]topology.Nodes) Answer {
		return Answer{Nodes: nodes, Boot: "boot", Envs: map[string]string{"GPU": "1"},
			Devices: []Node{{"/dev/gpu", "/dev/gpu1", "rw"}}}
	}
	both := Resources{gpu: {{ID: "g1"}, {ID: "g0"}}}
	tests := []struct {
		name, content string
		want          map[types.UID]Answers
		known         Resources
		err           string
	}{
		{"with NUMA nodes",
			recordtest.File(
				recordtest.Entry(t, "u1", "app", "example.com/gpu", `{"0":["g0","g1"],"1":["g1"],"-1":["g2"]}`)),
			map[types.UID]Answers{
				"u1": {
					"app": {gpu: answer(map[device.ID]topology.Nodes{"g0": topology.Of(0), "g1": topology.Of(0, 1),
						"g2": 0})}}}, both, ""},
		{"before 1.20", recordtest.File(recordtest.Entry(t, "u1", "app", "example.com/gpu", `["g0"]`)),
			map[types.UID]Answers{"u1": {"app": {gpu: answer(map[device.ID]topology.Nodes{"g0": 0})}}}, both, ""},
		{"part of it is damaged",
			recordtest.File(`{"PodUID":"u2","ContainerName":"app","ResourceName":"example.com/gpu","DeviceIDs":7}`,
				recordtest.Entry(t, "u1", "app", "example.com/gpu", `["g0"]`),
				recordtest.Entry(t, "u3", "", "example.com/gpu", `["g0"]`)),
			map[types.UID]Answers{"u1": {"app": {gpu: answer(map[device.ID]topology.Nodes{"g0": 0})}}}, both,
			`entry 0 (pod "u2", container "app", example.com/gpu): decode devices: json: cannot unmarshal number ` +
				`into Go value of type map[string][]string` + "\n" +
				`entry 2 (pod "u3", container "", example.com/gpu): the pod, container, resource or device is missing`},
		{"cut off", recordtest.File()[:30], nil, Resources{},
			"unexpected end of JSON input"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), kubelet.Name)
			if err := os.WriteFile(path, []byte(tt.content), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := readKubelet(path, "boot")
			if diff := cmp.Diff(tt.want, got.pods) + cmp.Diff(tt.known, got.known); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			text := ""
			if err != nil {
				text = strings.TrimPrefix(err.Error(), "read the kubelet's checkpoint of devices "+path+": ")
			}
			if text != tt.err {
				t.Errorf("error %s\nwant  %s", text, tt.err)
			}
		})
	}
}

func FuzzParseKubelet(f *testing.F) {
	f.Add([]byte(recordtest.File(recordtest.Entry(f, "u1", "app", "example.com/gpu", `{"0":["g0"]}`))))
	f.Add([]byte(recordtest.File(recordtest.Entry(f, "u1", "app", "example.com/gpu", `["g0"]`))))
	f.Fuzz(func(t *testing.T, content []byte) {
		s := kubeletState{known: Resources{}}
		_ = s.parse(content, "boot")
		for uid, a := range s.pods {
			for container, byName := range a {
				for name, answer := range byName {
					if uid == "" || container == "" || name == "" || len(answer.Nodes) == 0 {
						t.Errorf("%q %q %q holds %v", uid, container, name, answer.Nodes)
					}
				}
			}
		}
		if _, err := json.Marshal(s.pods); err != nil {
			t.Error(err)
		}
	})
}
