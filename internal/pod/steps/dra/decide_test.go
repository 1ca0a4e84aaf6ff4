package dra

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// somePod returns a pod with a claim by name, one from a template, and one for extended resources.
func somePod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: "uid"},
		Spec: corev1.PodSpec{
			ResourceClaims: []corev1.PodResourceClaim{
				{Name: "own", ResourceClaimName: new("shared")},
				{Name: "made", ResourceClaimTemplateName: new("template")},
			},
			Containers: []corev1.Container{{Name: "app", Resources: corev1.ResourceRequirements{
				Claims:   []corev1.ResourceClaim{{Name: "own", Request: "big"}, {Name: "made"}},
				Requests: corev1.ResourceList{"example.com/gpu": resource.MustParse("1")},
			}}, {Name: "side"}},
		},
		Status: corev1.PodStatus{
			ResourceClaimStatuses: []corev1.PodResourceClaimStatus{{Name: "made", ResourceClaimName: new("p-made")}},
			ExtendedResourceClaimStatus: &corev1.PodExtendedResourceClaimStatus{
				ResourceClaimName: "p-extended",
				RequestMappings: []corev1.ContainerExtendedResourceRequest{{ContainerName: "app",
					ResourceName: "example.com/gpu", RequestName: "r0"}},
			},
		},
	}
}

func someRecords() map[string]*record {
	made := &record{ClaimUID: "2", ClaimName: "p-made", Namespace: "default", PodUIDs: sets.New("uid"),
		DriverState: map[string]driverState{"b.example.com": {}}}
	shared := &record{
		ClaimUID: "1", ClaimName: "shared", Namespace: "default", PodUIDs: sets.New("uid", "other"),
		PreparedBoot: "boot",
		DriverState: map[string]driverState{"a.example.com": {Devices: []device{
			{PoolName: "pool", DeviceName: "x", RequestNames: []string{"big"},
				CDIDeviceIDs: []string{"a.example.com/device=x"}},
			{PoolName: "pool", DeviceName: "y", RequestNames: []string{"small"},
				CDIDeviceIDs: []string{"a.example.com/device=y"}},
			{PoolName: "pool", DeviceName: "z", ShareID: new(types.UID("share"))},
		}}},
	}
	return map[string]*record{"default/shared": shared, "default/p-made": made}
}

func TestNeeds(t *testing.T) {
	early := somePod()
	early.Status.ResourceClaimStatuses = nil
	none := somePod()
	none.Status.ResourceClaimStatuses[0].ResourceClaimName = nil
	none.Status.ExtendedResourceClaimStatus = nil
	tests := map[string]struct {
		pod     *corev1.Pod
		want    []need
		missing string
	}{
		"all": {pod: somePod(), want: []need{{"shared", false}, {"p-made", true}, {"p-extended", true}}},
		"not made yet": {pod: early,
			missing: `the ResourceClaim of "made" to be made from ResourceClaimTemplate "template"`},
		"none needed": {pod: none, want: []need{{"shared", false}}},
		"no claims":   {pod: &corev1.Pod{}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, missing := needs(test.pod)
			if d := cmp.Diff(test.want, got, cmp.AllowUnexported(need{})); d != "" || missing != test.missing {
				t.Errorf("missing %q, (-want +got):\n%s", missing, d)
			}
		})
	}
}

func TestUsable(t *testing.T) {
	claim := func(change func(*resourceapi.ResourceClaim)) *resourceapi.ResourceClaim {
		c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "c", Namespace: "default"}}
		c.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "uid",
			Controller: new(true)}}
		c.Status.Allocation = &resourceapi.AllocationResult{}
		c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: "p", UID: "uid"}}
		change(c)
		return c
	}
	tests := map[string]struct {
		claim       *resourceapi.ResourceClaim
		owned       bool
		lacks, fail string
	}{
		"ready": {claim: claim(func(*resourceapi.ResourceClaim) {}), owned: true},
		"not allocated": {claim: claim(func(c *resourceapi.ResourceClaim) { c.Status.Allocation = nil }),
			lacks: "ResourceClaim c to be allocated by the scheduler"},
		"not reserved": {
			claim: claim(func(c *resourceapi.ResourceClaim) { c.Status.ReservedFor[0].UID = "other" }),
			lacks: "ResourceClaim c to be reserved for the pod (status.reservedFor), which the scheduler does",
		},
		"another pod's": {
			claim: claim(func(c *resourceapi.ResourceClaim) { c.OwnerReferences[0].UID = "other" }), owned: true,
			fail: "ResourceClaim default/c was not created for Pod default/p (Pod is not owner); next: delete that " +
				"ResourceClaim, or the pod",
		},
		"of nobody, by name": {claim: claim(func(c *resourceapi.ResourceClaim) { c.OwnerReferences = nil })},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			lacks, err := usable(somePod(), test.claim, need{"c", test.owned})
			fail := ""
			if err != nil {
				fail = err.Error()
			}
			if lacks != test.lacks || fail != test.fail {
				t.Errorf("lacks %q, err %q", lacks, fail)
			}
		})
	}
}

func TestUses(t *testing.T) {
	p := somePod()
	got, missing := uses(p, &p.Spec.Containers[0])
	want := []use{{"own", "shared", "big"}, {"made", "p-made", ""}, {"", "p-extended", "r0"}}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(use{})); d != "" || missing != "" {
		t.Errorf("missing %q, (-want +got):\n%s", missing, d)
	}
	if got, _ := uses(p, &p.Spec.Containers[1]); got != nil {
		t.Errorf("a container without claims uses %v", got)
	}
	p.Status.ResourceClaimStatuses = nil
	if _, missing := uses(p, &p.Spec.Containers[0]); missing != `the ResourceClaim of "made"` {
		t.Errorf("missing %q", missing)
	}
}

func TestDevices(t *testing.T) {
	for request, want := range map[string]string{"": "x y z", "big": "x z", "big/sub": "x z", "small": "y z",
		"none": "z"} {
		var names []string
		for _, d := range someRecords()["default/shared"].devices(request) {
			names = append(names, d.DeviceName)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("request %q has %q, want %q", request, got, want)
		}
	}
}

func TestStatuses(t *testing.T) {
	now := time.Unix(1000, 0)
	healths := map[deviceKey]health{
		{"a.example.com", "pool", "x"}: {corev1.ResourceHealthStatusUnhealthy, "too hot", now.Add(time.Second)},
		{"a.example.com", "pool", "z"}: {corev1.ResourceHealthStatusHealthy, "", now},
	}
	got := statuses([]use{{"own", "shared", "big"}, {"made", "p-made", ""}, {"", "p-extended", "r0"}}, someRecords(),
		"default", healths, now)
	want := []corev1.ResourceStatus{{Name: "claim:own/big", Resources: []corev1.ResourceHealth{
		{ResourceID: "a.example.com/device=x", Health: corev1.ResourceHealthStatusUnhealthy, Message: new("too hot")},
		{ResourceID: "a.example.com/pool/z",
			Health: corev1.ResourceHealthStatusUnknown}, // the report has expired
	}}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestDue(t *testing.T) {
	now := time.Unix(1000, 0)
	names, next := due(map[string]time.Time{"old": now.Add(-Grace), "new": now.Add(-Grace + time.Second), "newer": now},
		now)
	if d := cmp.Diff([]string{"old"}, names); d != "" || !next.Equal(now.Add(time.Second)) {
		t.Errorf("next %v, (-want +got):\n%s", next, d)
	}
	if names, next := due(nil, now); names != nil || !next.IsZero() {
		t.Errorf("without drivers: %v, %v", names, next)
	}
}

// kubeletFile is the checkpoint that a kubelet 1.36.3 wrote for two pods, byte for byte.
const kubeletFile = `{"Data":"{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v1\",` +
	`\"ClaimInfoStateList\":[{\"ClaimUID\":\"7bd2dd88-bab7-4cb1-9ca3-e315a08f7548\",\"ClaimName\":\"claim-one\",` +
	`\"Namespace\":\"default\",\"PodUIDs\":{\"4b977394-6b03-4985-90df-39fb86f89e84\":{}},` +
	`\"DriverState\":{\"test1.example.com\":{\"Devices\":[{\"PoolName\":\"node1\",\"DeviceName\":\"gpu-0\",` +
	`\"ShareID\":null,\"RequestNames\":[\"any\"],\"CDIDeviceIDs\":[\"test1.example.com/device=claim-one-gpu-0\"]}]}}` +
	`},{\"ClaimUID\":\"d5d4d501-d24f-4135-967e-c832870fc449\",\"ClaimName\":\"claim-two\",\"Namespace\":\"default\",` +
	`\"PodUIDs\":{\"7bf612c5-91e8-420d-b424-f2bd2a2521d4\":{}},` +
	`\"DriverState\":{\"test1.example.com\":{\"Devices\":[{\"PoolName\":\"node1\",\"DeviceName\":\"gpu-1\",` +
	`\"ShareID\":null,\"RequestNames\":[\"any\"],\"CDIDeviceIDs\":[\"test1.example.com/device=claim-two-gpu-1\"]}]}}` +
	`}]}","Checksum":2687483826}`

func TestCheckpoint(t *testing.T) {
	path := filepath.Join(t.TempDir(), stateFile)
	if err := writeRecords(path, someRecords()); err != nil {
		t.Fatal(err)
	}
	got, err := readRecords(path)
	if d := cmp.Diff(someRecords(), got); d != "" || err != nil {
		t.Errorf("err %v, (-want +got):\n%s", err, d)
	}
	if got, err := readRecords(path + "-none"); err != nil || len(got) > 0 {
		t.Errorf("no file: %v, %v", got, err)
	}
	if err := os.WriteFile(path, []byte(`{"Data":"{}","Checksum":7}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readRecords(path); err == nil || !strings.Contains(err.Error(), "has checksum 7") {
		t.Errorf("a damaged file: %v", err)
	}
	if aside, _ := filepath.Glob(path + ".corrupt-*"); len(aside) != 1 {
		t.Errorf("files moved aside: %v", aside)
	}
}

func TestCheckpointOfKubelet(t *testing.T) {
	claim := func(uid types.UID, name, pod, dev string) *record {
		return &record{ClaimUID: uid, ClaimName: name, Namespace: "default", PodUIDs: sets.New(pod),
			DriverState: map[string]driverState{
				"test1.example.com": {Devices: []device{{PoolName: "node1", DeviceName: dev,
					RequestNames: []string{"any"},
					CDIDeviceIDs: []string{"test1.example.com/device=" + name + "-" + dev}}}},
			}}
	}
	want := map[string]*record{
		"default/claim-one": claim("7bd2dd88-bab7-4cb1-9ca3-e315a08f7548", "claim-one",
			"4b977394-6b03-4985-90df-39fb86f89e84", "gpu-0"),
		"default/claim-two": claim("d5d4d501-d24f-4135-967e-c832870fc449", "claim-two",
			"7bf612c5-91e8-420d-b424-f2bd2a2521d4", "gpu-1"),
	}
	got, err := open([]byte(kubeletFile))
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("err %v, (-want +got):\n%s", err, d)
	}
	raw, err := seal(want)
	if d := cmp.Diff(kubeletFile, string(raw)); d != "" || err != nil {
		t.Errorf("written back: err %v, (-want +got):\n%s", err, d)
	}
}
