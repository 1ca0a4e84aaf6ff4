package podresources

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/node/resource/device"
	"github.com/berth-run/berth/internal/node/resource/memory"
	"github.com/berth-run/berth/internal/node/resource/topology"
)

const gpu corev1.ResourceName = "example.com/gpu"

type running []*corev1.Pod

func (r running) Pods() []*corev1.Pod { return r }

type held struct {
	pods   map[types.UID]resource.Allocation
	cpus   cpuset.CPUSet
	memory []memory.Block
}

func (h held) Get(uid types.UID) (resource.Allocation, bool) { a, ok := h.pods[uid]; return a, ok }

func (h held) CPUs() cpuset.CPUSet { return h.cpus }

func (h held) Memory() []memory.Block { return h.memory }

type inventory device.Inventory

func (i inventory) Inventory() device.Inventory { return device.Inventory(i) }

func (i inventory) Nodes(_ types.UID, _ string, name corev1.ResourceName, id device.ID) topology.Nodes {
	at := slices.IndexFunc(i[name], func(d device.Device) bool { return d.ID == id })
	return i[name][at].Nodes
}

// claimed holds the claims of the container app in the pod rich.
type claimed []*api.DynamicResource

func (c claimed) DynamicResources(p *corev1.Pod, container string) []*api.DynamicResource {
	if p.Name != "rich" || container != "app" {
		return nil
	}
	return c
}

func someClaims() claimed {
	return claimed{{ClaimName: "c", ClaimNamespace: "shop", ClaimResources: []*api.ClaimResource{
		{DriverName: "gpu.example.com", PoolName: "pool", DeviceName: "d",
			CdiDevices: []*api.CDIDevice{{Name: "gpu.example.com/device=d"}}},
	}}}
}

// serve starts a server for a node with two pods: rich holds resources of every kind, poor holds none.
func serve(t *testing.T) (api.PodResourcesListerClient, *Server) {
	t.Helper()
	always := corev1.ContainerRestartPolicyAlways
	rich := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "rich", Namespace: "shop", Name: "rich"},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "init"}, {Name: "side", RestartPolicy: &always}},
			Containers:     []corev1.Container{{Name: "app"}, {Name: "shares"}},
		}}
	poor := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "poor", Namespace: "shop", Name: "poor"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "app"}}}}
	block := []memory.Block{{Nodes: topology.Of(0, 1), Resource: corev1.ResourceMemory, Size: 1 << 30}}
	dir, err := os.MkdirTemp("", "p")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "pod-resources", "kubelet.sock")
	s := New(Options{
		Socket: socket,
		Pods:   running{rich, poor},
		Ledger: held{cpus: cpuset.New(1, 2, 3), memory: block, pods: map[types.UID]resource.Allocation{"rich": {
			Containers: map[string]resource.Holding{
				"init": {CPUs: cpuset.New(1)},
				"side": {CPUs: cpuset.New(2)},
				"app": {CPUs: cpuset.New(3, 1), Memory: block,
					Devices: map[corev1.ResourceName][]device.ID{gpu: {"b", "a", "n"}}},
			},
			Pod: resource.Holding{CPUs: cpuset.New(1, 2, 3, 4), Memory: block},
		}}},
		Devices: inventory{gpu: {{ID: "a", Healthy: true, Nodes: topology.Of(0)},
			{ID: "b", Healthy: true, Nodes: topology.Of(0, 1)}, {ID: "n", Healthy: true}, {ID: "x"}}},
		Claims: someClaims(),
		Log:    slog.New(slog.DiscardHandler),
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return api.NewPodResourcesListerClient(conn), s
}

func on(ids ...int64) *api.TopologyInfo {
	info := &api.TopologyInfo{}
	for _, id := range ids {
		info.Nodes = append(info.Nodes, &api.NUMANode{ID: id})
	}
	return info
}

func dev(id string, nodes *api.TopologyInfo) *api.ContainerDevices {
	return &api.ContainerDevices{ResourceName: "example.com/gpu", DeviceIds: []string{id}, Topology: nodes}
}

func TestAnswers(t *testing.T) {
	client, _ := serve(t)
	all := []*api.ContainerDevices{dev("a", on(0)), dev("b", on(0)), dev("b", on(1)), dev("n", nil)}
	block := []*api.ContainerMemory{{MemoryType: "memory", Size: 1 << 30, Topology: on(0, 1)}}
	rich := &api.PodResources{Name: "rich", Namespace: "shop", CpuIds: []int64{1, 2, 3, 4}, Memory: block,
		Containers: []*api.ContainerResources{
			{Name: "side", CpuIds: []int64{2}},
			{Name: "app", CpuIds: []int64{1, 3}, Memory: block, Devices: all, DynamicResources: someClaims()},
			{Name: "shares"},
		}}
	poor := &api.PodResources{Name: "poor", Namespace: "shop", Containers: []*api.ContainerResources{{Name: "app"}}}

	list, err := client.List(t.Context(), &api.ListPodResourcesRequest{})
	if diff := cmp.Diff(&api.ListPodResourcesResponse{PodResources: []*api.PodResources{rich, poor}}, list,
		protocmp.Transform()); diff != "" || err != nil {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
	one, err := client.Get(t.Context(), &api.GetPodResourcesRequest{PodName: "rich", PodNamespace: "shop"})
	if diff := cmp.Diff(&api.GetPodResourcesResponse{PodResources: rich}, one, protocmp.Transform()); diff != "" ||
		err != nil {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
	_, err = client.Get(t.Context(), &api.GetPodResourcesRequest{PodName: "rich", PodNamespace: "other"})
	if status.Code(err) != codes.NotFound {
		t.Errorf("get a missing pod: %v", err)
	}
	allocatable, err := client.GetAllocatableResources(t.Context(), &api.AllocatableResourcesRequest{})
	if diff := cmp.Diff(&api.AllocatableResourcesResponse{CpuIds: []int64{1, 2, 3}, Memory: block, Devices: all},
		allocatable, protocmp.Transform()); diff != "" || err != nil {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
}

func TestRateLimit(t *testing.T) {
	client, _ := serve(t)
	var refused error
	for range 1000 {
		if _, err := client.List(t.Context(), &api.ListPodResourcesRequest{}); err != nil {
			refused = err
			break
		}
	}
	if status.Code(refused) != codes.ResourceExhausted {
		t.Errorf("got %v", refused)
	}
}

// Each call is counted under its method. A failed call is counted as a request and as an error.
func TestMetrics(t *testing.T) {
	client, s := serve(t)
	reg := prometheus.NewPedanticRegistry()
	if err := s.Register(reg); err != nil {
		t.Fatal(err)
	}
	if _, err := client.List(t.Context(), &api.ListPodResourcesRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Get(t.Context(),
		&api.GetPodResourcesRequest{PodName: "none"}); status.Code(err) != codes.NotFound {
		t.Fatal(err)
	}
	got := map[string]float64{}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		got[f.GetName()+" "+f.Metric[0].Label[0].GetValue()] = f.Metric[0].Counter.GetValue()
	}
	want := map[string]float64{
		"kubelet_pod_resources_endpoint_requests_total v1": 2, "kubelet_pod_resources_endpoint_requests_list v1": 1,
		"kubelet_pod_resources_endpoint_requests_get v1": 1, "kubelet_pod_resources_endpoint_errors_get v1": 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
