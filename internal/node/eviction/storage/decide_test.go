package storage

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func read(t *testing.T, spec string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		t.Fatal(err)
	}
	p.Name, p.Namespace, p.UID = "p", "default", "uid"
	return p
}

func TestExceeded(t *testing.T) {
	const volumes = "volumes: [{name: a, emptyDir: {sizeLimit: 1Mi}}, {name: b, emptyDir: {}}, " +
		"{name: m, emptyDir: {medium: Memory, sizeLimit: 1Mi}}, {name: z, emptyDir: {sizeLimit: 0}}]\n"
	const one = "containers: [{name: app, resources: {limits: {ephemeral-storage: 2Mi}}}, {name: free}]\n"
	const two = "containers: [{name: app, resources: {limits: {ephemeral-storage: 2Mi}}}, " +
		"{name: other, resources: {limits: {ephemeral-storage: 1500000}}}]\n"
	const none = "containers: [{name: app}]\n"
	const mib = 1 << 20
	dirs := func(a, b int64) map[string]EmptyDir { return map[string]EmptyDir{"a": {Bytes: a}, "b": {Bytes: b}} }
	for _, test := range []struct {
		name, spec string
		used       Usage
		want       *Excess
		room       int64
		limited    bool
	}{
		{name: "no limits", spec: none, used: Usage{Total: 1 << 40}, room: 1<<63 - 1},
		{name: "volumes without a limit on disk", room: 1<<63 - 1,
			spec: none + "volumes: [{name: a, emptyDir: {}}, {name: m, emptyDir: {medium: Memory, sizeLimit: 1Mi}}]",
			used: Usage{EmptyDirs: map[string]EmptyDir{"a": {Bytes: 1 << 40}, "m": {Bytes: 1 << 40}}}},
		{name: "a full volume", spec: none + volumes, used: Usage{EmptyDirs: dirs(mib, 9*mib)}, limited: true},
		{name: "a volume beyond its limit", spec: none + volumes, used: Usage{EmptyDirs: dirs(mib+1, 0)}, limited: true,
			want: &Excess{EmptyDirLimit, `Usage of EmptyDir volume "a" exceeds the limit "1Mi". `}},
		{name: "a volume that cannot be measured", spec: none + volumes, limited: true, room: mib,
			used: Usage{EmptyDirs: map[string]EmptyDir{"a": {Err: errors.New("too deep")}}},
			want: &Excess{EmptyDirLimit,
				`Usage of EmptyDir volume "a" cannot be measured against the limit "1Mi": too deep. `}},
		{name: "the pod at its limit", spec: two, used: Usage{Total: 2*mib + 1500000}, limited: true},
		{name: "the pod beyond its limit", spec: two, used: Usage{Total: 2*mib + 1500001}, limited: true,
			want: &Excess{PodLimit,
				"Pod ephemeral local storage usage exceeds the total limit of containers 3597152. "}},
		{name: "one container's limit is the pod's", spec: one, limited: true,
			used: Usage{Total: 3 * mib, Containers: map[string]int64{"free": 3 * mib}},
			want: &Excess{PodLimit, "Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. "}},
		{name: "a container beyond its limit", spec: two, limited: true,
			used: Usage{Total: 2 * mib, Containers: map[string]int64{"app": mib, "other": 1500001}},
			want: &Excess{ContainerLimit, `Container other exceeded its local ephemeral storage limit "1500k". `}},
		{name: "a container within its limit", spec: two, limited: true, room: 1000,
			used: Usage{Total: 2 * mib, Containers: map[string]int64{"app": mib, "other": 1499000}}},
		{name: "init containers only count in the pod's limit", limited: true,
			spec: none + "initContainers: [{name: init, resources: {limits: {ephemeral-storage: 1Mi}}}]",
			used: Usage{Total: mib, Containers: map[string]int64{"init": mib}}},
		{name: "volumes first", spec: one + volumes, limited: true,
			used: Usage{Total: 9 * mib, EmptyDirs: dirs(2*mib, 0), Containers: map[string]int64{"app": 9 * mib}},
			want: &Excess{EmptyDirLimit, `Usage of EmptyDir volume "a" exceeds the limit "1Mi". `}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := read(t, test.spec)
			if diff := cmp.Diff(test.want, Exceeded(p, test.used)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got := Room(p, test.used); got != test.room {
				t.Errorf("room %d, want %d", got, test.room)
			}
			if got := Limited(p); got != test.limited {
				t.Errorf("limited %t, want %t", got, test.limited)
			}
		})
	}
}

func TestNext(t *testing.T) {
	const room = 1 << 30
	start := time.Unix(1000, 0)
	for _, test := range []struct {
		after, took time.Duration
		room, grown int64
		pods        int
		due         bool
		again       time.Duration // after the last measurement
	}{
		// nothing is written: as often as the kubelet measures; meanwhile the agent reads the file system
		{after: 0, room: room, again: 2 * time.Second},
		{after: 4 * time.Second, room: room, again: 6 * time.Second},
		{after: 9 * time.Second, room: room, again: 10 * time.Second},
		{after: 0, room: 1 << 50, again: 10 * time.Second},
		{after: 10 * time.Second, room: room, due: true, again: 10 * time.Second},
		// half of the room may be gone: soon
		{after: 500 * time.Millisecond, room: room, grown: room / 2, again: time.Second},
		{after: time.Second, room: room, grown: room / 2, due: true, again: time.Second},
		{after: time.Second, room: room, grown: room / 4, again: 2 * time.Second},
		{after: 3 * time.Second, room: 0, due: true, again: 3 * time.Second},
		// slow measurements are rare
		{after: time.Second, took: 50 * time.Millisecond, room: 0, again: 5 * time.Second},
		{after: 10 * time.Second, took: time.Second, room: room, again: 12 * time.Second},
		{after: 100 * time.Second, took: time.Second, room: room, due: true, again: 100 * time.Second},
		{after: 100 * time.Second, took: time.Second, pods: 100, room: 0, again: 1000 * time.Second / 10 * 6},
		{after: 10 * time.Minute, took: time.Hour, room: room, due: true, again: 10 * time.Minute},
	} {
		m := measured{at: start, took: test.took, room: test.room, disk: 7}
		due, again := m.next(start.Add(test.after), 7+test.grown, max(1, test.pods))
		if due != test.due || again.Sub(start) != test.again {
			t.Errorf("%+v: due %t, again after %v", test, due, again.Sub(start))
		}
	}
}
