package drift

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/cgroupfile"
)

// verbose is a runtime that reports one text as the verbose status of each container.
type verbose string

func (v verbose) ContainerStatus(context.Context, *runtimeapi.ContainerStatusRequest,
	...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error) {
	return &runtimeapi.ContainerStatusResponse{Info: map[string]string{"info": string(v)}}, nil
}

func (verbose) UpdateContainerResources(context.Context, *runtimeapi.UpdateContainerResourcesRequest,
	...grpc.CallOption) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	return &runtimeapi.UpdateContainerResourcesResponse{}, nil
}

// FuzzInfo reads the limits of a container from a runtime with any verbose status. No limit is empty, and a cgroup that
// has these limits differs in nothing.
func FuzzInfo(f *testing.F) {
	for _, resources := range []string{
		`{"cpu":{"shares":1024,"quota":50000,"period":100000,"cpus":"0-1","mems":"0"},"memory":{"limit":67108864,` +
			`"swap":67108864},"unified":{"memory.high":"60397977","memory.min":"1","memory.low":"x"}}`,
		`{"cpu":{"shares":18446744073709551615,"quota":-9223372036854775808,"period":0,"cpus":"0-4294967295"}}`,
		`{"cpu":null,"memory":{"limit":-1,"swap":0},"unified":{"memory.high":"-9"}}`, `null`,
	} {
		f.Add(`{"pid":1,"runtimeSpec":{"linux":{"resources":` + resources + `}}}`)
	}
	f.Add("")
	f.Fuzz(func(t *testing.T, info string) {
		x := &container{s: NewContainers(ContainerOptions{Runtime: verbose(info), Places: anywhere{}}),
			pod: &corev1.Pod{}, id: "1", name: "app"}
		b, err := x.fetch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if cached := x.s.bounds["1"]; cached != b {
			t.Errorf("fetched %+v, and keeps %+v", b, cached)
		}
		if b.Quota < -1 || b.Memory < -1 {
			t.Errorf("read %+v", b)
		}
		for _, unified := range []bool{true, false} {
			want := x.placed(b).Values(unified)
			have := cgroupfile.Values{}
			for file, text := range want {
				if text == "" {
					t.Errorf("%s gets no value of %+v", file, b)
				}
				have[file], _, _ = strings.Cut(text, "|")
			}
			if found := cgroupfile.Differences(want, have); len(found) > 0 {
				t.Errorf("%+v differs from itself: %+v", want, found)
			}
		}
	})
}
