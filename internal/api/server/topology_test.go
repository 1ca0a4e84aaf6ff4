package server_test

import (
	"bytes"
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/api/servertest"
	"github.com/berth-run/berth/internal/base/golden"
	"github.com/berth-run/berth/internal/node/machine/machinetest"
	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/node/resource/device"
	"github.com/berth-run/berth/internal/node/resource/memory"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

// Other programs read the answer, so the test compares it byte for byte.
func TestTopology(t *testing.T) {
	a := servertest.Start(t)
	a.Pods.Put(types.NamespacedName{Namespace: "default", Name: "web"},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "1"}})
	const gpu corev1.ResourceName = "example.com/gpu"
	a.SetResources(resource.Node{
		Machine: machinetest.Load(t, "1x6-smt-zen"),
		Policy:  resource.Policy{CPUs: true, ReservedCPUs: cpuset.New(0)},
		Devices: device.Inventory{gpu: {{ID: "1"}, {ID: "0", Healthy: true, Nodes: topology.Of(0)}}},
	}, resource.Held{
		"1": {Containers: map[string]resource.Holding{"app": {
			CPUs:    cpuset.New(1, 7),
			Memory:  []memory.Block{{Nodes: topology.Of(0), Resource: corev1.ResourceMemory, Size: 1 << 30}},
			Devices: map[corev1.ResourceName][]device.ID{gpu: {"0"}},
		}}},
		"2": {Pod: resource.Holding{CPUs: cpuset.New(2, 8)}},
	})
	code, got := ask(t, a, "GET", "/berth/v1/topology", "")
	if code != 200 {
		t.Fatalf("%d %s", code, got)
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, []byte(got), "", "  "); err != nil {
		t.Fatal(err)
	}
	golden.Text(t, "topology.json", indented.String())
}
