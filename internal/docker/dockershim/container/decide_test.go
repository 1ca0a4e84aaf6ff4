package container

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/docker/dockershim/index"
)

func TestReasonOfTheEnd(t *testing.T) {
	const exited = runtimeapi.ContainerState_CONTAINER_EXITED
	started := index.Times{Started: 1}
	for want, c := range map[string]*index.Record{
		"":           {State: runtimeapi.ContainerState_CONTAINER_RUNNING, Times: started},
		"Completed":  {State: exited, Times: started},
		"Error":      {State: exited, Times: started, ExitCode: 1},
		"OOMKilled":  {State: exited, Times: started, ExitCode: 137, OOMKilled: true},
		"StartError": {State: exited, ExitCode: 127},
	} {
		if got := reason(c); got != want {
			t.Errorf("%+v: %q, want %q", c, got, want)
		}
	}
}

func TestImageOfAContainerHasATag(t *testing.T) {
	for _, c := range []struct{ requested, tag, want string }{
		{"sha256:12", "example.com/app:1", "example.com/app:1"},
		{"sha256:12", "", "sha256:12"},
		{"app:2", "example.com/app:1", "app:2"},
	} {
		if got := imageOf(c.requested, c.tag); got != c.want {
			t.Errorf("image %q with the tag %q: %q, want %q", c.requested, c.tag, got, c.want)
		}
	}
}

// Only numeric users are reported: what a name means depends on files in the container.
func TestOnlyNumericUsersAreReported(t *testing.T) {
	want := &runtimeapi.ContainerUser{Linux: &runtimeapi.LinuxContainerUser{Uid: 1, Gid: 2,
		SupplementalGroups: []int64{3}}}
	if diff := cmp.Diff(want, userOf("1:2", []string{"3"}), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	for _, user := range []string{"", "1", "app", "app:2"} {
		if got := userOf(user, nil); got != nil {
			t.Errorf("%q: %s", user, got)
		}
	}
}

// The limits are where an agent finds those of containerd. A value that is not given is missing.
func TestVerboseStatusHasTheLimits(t *testing.T) {
	got, err := verbose(&index.Record{ID: "i", Name: "k8s_c", Pid: 7}, &runtimeapi.LinuxContainerResources{
		CpuShares: 102, CpuPeriod: 100000, MemoryLimitInBytes: 1 << 20, MemorySwapLimitInBytes: 1 << 20})
	want := `{"name":"k8s_c","pid":7,"runtimeSpec":{"ociVersion":"","linux":{"resources":{"memory":` +
		`{"limit":1048576,"swap":1048576},"cpu":{"shares":102,"period":100000}}}},"sandboxID":""}`
	if got != want || err != nil {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}
