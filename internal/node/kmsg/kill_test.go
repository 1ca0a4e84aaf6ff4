package kmsg

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/record/event"
)

// Lines as kernels write them. pod618 is from a real kernel with cgroup v1. There, a pod reached its limit before its
// container did.
const (
	pod618 = `oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=4cbe2e62,mems_allowed=0,` +
		`oom_memcg=/kubepods/burstable/pod1,task_memcg=/kubepods/burstable/pod1/4cbe2e62,task=workload,pid=5212,uid=0`
	systemd61 = `oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=cri-containerd-aa.scope,` +
		`mems_allowed=0-1,oom_memcg=/kubepods.slice/kubepods-pod1.slice/cri-containerd-aa.scope,` +
		`task_memcg=/kubepods.slice/kubepods-pod1.slice/cri-containerd-aa.scope,task=a,pid=9,b,pid=10,uid=1000`
	pods515 = `oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,oom_memcg=/kubepods,` +
		`task_memcg=/kubepods/pod1/abc,task=app,pid=77,uid=0`
)

func TestParseKill(t *testing.T) {
	for name, test := range map[string]struct {
		said string
		want []kill
	}{
		"a container, 5.4": {cgroup54, []kill{{"/kubepods/pod1", "/kubepods/pod1/abc", "app", 77}}},
		"a pod, 6.18": {pod618, []kill{{"/kubepods/burstable/pod1",
			"/kubepods/burstable/pod1/4cbe2e62", "workload", 5212}}},
		"systemd, 6.1": {systemd61, []kill{{"/kubepods.slice/kubepods-pod1.slice/cri-containerd-aa.scope",
			"/kubepods.slice/kubepods-pod1.slice/cri-containerd-aa.scope", "a,pid=9,b", 10}}},
		"the machine, 5.15":   {machine515, []kill{{"", "/user.slice", "python3", 31337}}},
		"CPUs' memory, 6.12":  {allocating612, []kill{{"", "/", "a (b) c", 9}}},
		"no reason, 4.19":     {cgroup419, nil},
		"the rest of a group": {group612, nil},
		"cut off":             {pod618[:150], nil},
		"a broken number":     {strings.Replace(pod618, "pid=5212", "pid=x", 1), nil},
		"another line":        {"app: " + pod618, nil},
	} {
		var got []kill
		for line := range strings.Lines(test.said) {
			if k, ok := parseKill(strings.TrimSuffix(line, "\n")); ok {
				got = append(got, k)
			}
		}
		if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(kill{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// owners implements Pods.
type owners map[string]Owner

func (o owners) Owner(cgroup string) *Owner {
	if found, ok := o[cgroup]; ok {
		return &found
	}
	return nil
}

func TestKillsAreToldApart(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}}
	pods := owners{
		"/kubepods/pod1": {Pod: p}, "/kubepods/pod1/abc": {p, "app", "abc"}, "/kubepods/burstable/pod1": {Pod: p},
		"/kubepods/burstable/pod1/4cbe2e62":                           {p, "app", "4cbe2e62"},
		"/kubepods.slice/kubepods-pod1.slice/cri-containerd-aa.scope": {p, "db", "aa"},
	}
	service := strings.ReplaceAll(pods515, "/kubepods", "/system.slice")
	var lines records
	for _, text := range []string{pod618, systemd61, pods515, service,
		strings.Replace(machine515, "/user.slice", "/kubepods/pod1/abc", 1)} {
		for line := range strings.Lines(text) {
			lines = append(lines, "6,1,1,-;"+line)
		}
	}
	var got recorder
	var marked marks
	l := New(Options{Node: event.NodeRef("n"), Pods: pods, Events: &got, Statuses: &marked})
	if err := l.follow(&lines); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	const of = "Pod p Warning OOMKilled: process "
	want := recorder{
		of + "workload (pid 5212) of container app was killed: the pod reached its memory limit",
		of + "a,pid=9,b (pid 10) of container db was killed: container db reached its memory limit",
		of + "app (pid 77) of container app was killed: the pods of the node together reached their memory limit",
		of + "python3 (pid 31337) of container app was killed: the machine is out of memory",
		"Node n Warning SystemOOM: System OOM encountered, victim process: python3, pid: 31337",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for id, want := range map[string]string{"4cbe2e62": "the pod reached its memory limit",
		"aa": "container db reached its memory limit", "abc": "the machine is out of memory", "another": ""} {
		if got := l.Cause(id); got != want {
			t.Errorf("container %s: %q, want %q", id, got, want)
		}
	}
	if marked != 4 {
		t.Errorf("%d statuses published, want 4", marked)
	}
	for _, scope := range []Scope{OfContainer, OfPod, OfPods, OfMachine} {
		if n := testutil.ToFloat64(l.kills.WithLabelValues(string(scope))); n != 1 {
			t.Errorf("%s: %v", scope, n)
		}
	}
}

// marks counts the statuses to publish.
type marks int

func (m *marks) Mark(types.UID) { *m++ }

// The causes of old kills are forgotten.
func TestCausesAreBounded(t *testing.T) {
	c := causes{texts: map[string]string{}}
	for i := range 2 * maxCauses {
		c.add(fmt.Sprint(i), "first")
		c.add(fmt.Sprint(i), "second")
	}
	if len(c.texts) != maxCauses || len(c.order) != maxCauses || c.texts[fmt.Sprint(2*maxCauses-1)] != "second" {
		t.Errorf("%d causes of %d containers", len(c.texts), len(c.order))
	}
}
