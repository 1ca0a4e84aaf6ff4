package admission

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
)

func TestAdmit(t *testing.T) {
	older := other(t, "app", requests("cpu: 1500m"))
	older.Pod.UID = "older"
	tests := map[string]struct {
		spec     string
		admitted []PodInfo
		want     Answer
		spoke    []string // rules that did not admit
		noUserns string
	}{
		"nothing speaks against it": {spec: requests("cpu: 1")},
		"the first rejection": {
			spec:  "nodeName: there\nresourceClaims: [{name: x}]\n" + requests("cpu: 3"),
			want:  reject(UnsupportedField, "spec.resourceClaims: "+noClaims),
			spoke: []string{"fields", "nodeName", "resources"},
		},
		"a rejection before what may come": {
			spec: requests("cpu: 3"), admitted: []PodInfo{ending(older, older.EndsBy)},
			want: reject("OutOfcpu",
				"Node didn't have enough resource: cpu, requested: 3000, used: 1500, capacity: 2000"),
			spoke: []string{"name", "resources"},
		},
		"what the node cannot do before what may come": {
			spec: "hostUsers: false\n" + requests("cpu: 1"), admitted: []PodInfo{ending(older, older.EndsBy)},
			noUserns: "no",
			want: block(UserNamespacesNotSupported,
				"cannot give the pod its own user namespace (hostUsers: false): no"),
			spoke: []string{"userNamespaces", "name", "resources"},
		},
		"the first that may come": {
			spec: requests("cpu: 1"), admitted: []PodInfo{ending(older, older.EndsBy)},
			want: Answer{Verdict: NotYet, Reason: SameName,
				Message: "waiting for pod default/app to end: older has the same name"},
			spoke: []string{"name", "resources"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, traces := Admit(In{Pod: spec(t, test.spec), Node: facts(), Admitted: test.admitted,
				Config: Config{Standalone: true, NoUserNamespaces: test.noUserns}})
			if d := cmp.Diff(test.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			var spoke []string
			for i, tr := range traces {
				if tr.Rule != Rules()[i].Name {
					t.Errorf("trace %d is of %s, want %s", i, tr.Rule, Rules()[i].Name)
				}
				if tr.Answer.Verdict != Admitted {
					spoke = append(spoke, tr.Rule)
				}
			}
			if d := cmp.Diff(test.spoke, spoke); d != "" {
				t.Errorf("rules that spoke (-want +got):\n%s", d)
			}
		})
	}
}

// TestNeverOvercommits adds, ends and removes pods at random. The admitted pods never hold more than the node has, nor
// one host port twice. A pod that waits is admitted once the terminating pods are gone.
func TestNeverOvercommits(t *testing.T) {
	for seed := range uint64(50) {
		r := rand.New(rand.NewPCG(seed, 1))
		n := facts()
		n.Allocatable = list("cpu", "4", "memory", "4Gi", "ephemeral-storage", "10Gi", "pods", "6")
		var admitted []PodInfo
		for i := range 60 {
			if len(admitted) > 0 && r.IntN(3) == 0 {
				victim := r.IntN(len(admitted))
				if admitted[victim].Terminating {
					admitted = append(admitted[:victim], admitted[victim+1:]...)
				} else {
					admitted[victim].Terminating = true
				}
				continue
			}
			p := randomPod(r, i)
			answer, _ := Admit(In{Pod: p, Node: n, Admitted: admitted})
			if answer.Verdict == NotYet {
				rest := staying(admitted)
				if again, _ := Admit(In{Pod: p, Node: n, Admitted: rest}); again.Verdict != Admitted {
					t.Fatalf("seed %d: told to wait (%s), then %+v", seed, answer.Message, again)
				}
			}
			if answer.Verdict == Admitted {
				admitted = append(admitted, PodInfo{Pod: p})
			}
			if err := overcommitted(admitted, amountsOf(n.Allocatable)); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, i, err)
			}
		}
	}
}

func staying(all []PodInfo) []PodInfo {
	var rest []PodInfo
	for _, o := range all {
		if !o.Terminating {
			rest = append(rest, o)
		}
	}
	return rest
}

func randomPod(r *rand.Rand, i int) *corev1.Pod {
	p := &corev1.Pod{}
	p.Namespace, p.Name, p.UID = "default", fmt.Sprint("p", i), types.UID(fmt.Sprint(i))
	for range 1 + r.IntN(3) {
		c := corev1.Container{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			"cpu":    *resource.NewMilliQuantity(r.Int64N(2000), resource.DecimalSI),
			"memory": *resource.NewQuantity(r.Int64N(2<<30), resource.BinarySI),
		}}}
		switch r.IntN(4) {
		case 0:
			c.Ports = []corev1.ContainerPort{{ContainerPort: 1, HostPort: 8000 + r.Int32N(3),
				Protocol: corev1.ProtocolTCP}}
		case 1:
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
			continue
		}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	return p
}

// overcommitted counts by containers alone, not by the helper that admission uses.
func overcommitted(admitted []PodInfo, capacity amounts) error {
	used := amounts{"pods": int64(len(admitted))}
	taken := map[int32]types.UID{}
	for _, o := range admitted {
		sum, most := amounts{}, amounts{}
		for _, c := range o.Pod.Spec.Containers {
			sum.add(amountsOf(c.Resources.Requests))
		}
		for _, c := range o.Pod.Spec.InitContainers {
			for name, n := range amountsOf(c.Resources.Requests) {
				most[name] = max(most[name], n)
			}
		}
		for _, name := range []corev1.ResourceName{"cpu", "memory"} {
			used[name] += max(sum[name], most[name])
		}
		for _, h := range hostPorts(o.Pod) {
			if by, ok := taken[h.port]; ok && by != o.Pod.UID {
				return fmt.Errorf("host port %d is taken twice", h.port)
			}
			taken[h.port] = o.Pod.UID
		}
	}
	for name, n := range used {
		if n > capacity[name] {
			return fmt.Errorf("%s: %d of %d", name, n, capacity[name])
		}
	}
	return nil
}
