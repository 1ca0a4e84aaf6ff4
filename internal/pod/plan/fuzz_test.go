package plan

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

// world models a node with one pod: the state that a runtime reports after a plan was carried out, and the events that
// can happen.
type world struct {
	t      *testing.T
	in     Input
	serial int
	// begun counts the starts of each ephemeral container.
	begun map[string]int
	// through has the init containers that completed in the newest sandbox, and the sidecars that ran in it.
	through map[string]bool
	ended   string // how the pod ended by itself; "" if it has not
}

// FuzzPlan applies random events to a pod and carries out its plans. The plans must come to rest, nothing may start
// twice or too early, and an ended pod must stay ended.
func FuzzPlan(f *testing.F) {
	f.Add([]byte{0, 0, 1, 0, 2, 1})
	f.Add([]byte{1, 7, 0, 0, 2, 0, 0, 3, 0, 1, 0, 5, 0, 0, 2, 1})
	f.Add([]byte{2, 255, 0, 42, 0, 42, 4, 9, 0, 42, 6, 1})
	f.Fuzz(func(t *testing.T, script []byte) {
		next := func() (b byte) {
			if len(script) > 0 {
				b, script = script[0], script[1:]
			}
			return b
		}
		w := newWorld(t, next(), next())
		w.settle(100)
		for range 50 {
			if len(script) == 0 {
				break
			}
			what, which := next(), next()
			w.happen(what, which)
			// In a quarter of the cases the agent is killed midway.
			if what&0x80 != 0 && which&1 == 1 {
				w.settle(int(which>>1) % 4)
			}
			w.settle(100)
		}
	})
}

func newWorld(t *testing.T, policy, shape byte) *world {
	opts := []specOption{}
	for bit, o := range []specOption{sidecar("s1", false), inits("i1"), sidecar("s2", true), inits("i2"),
		ephemeral("e1")} {
		if shape&(1<<bit) != 0 {
			opts = append(opts, o)
		}
	}
	opts = append(opts, apps("a1"))
	if shape&0x20 != 0 {
		opts = append(opts,
			rule(corev1.ContainerRestartRuleActionRestartAllContainers, corev1.ContainerRestartRuleOnExitCodesOpIn, 42))
	}
	if shape&0x40 != 0 {
		opts = append(opts, apps("a2"), own(corev1.ContainerRestartPolicyOnFailure))
	}
	if shape&0x80 != 0 {
		opts = append(opts, func(p *corev1.Pod) { p.Spec.HostNetwork = true })
	}
	policies := []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure,
		corev1.RestartPolicyNever}
	return &world{
		t: t, begun: map[string]int{}, through: map[string]bool{},
		in: Input{
			Pod: spec(policies[int(policy)%3], opts...), Observed: &pod.Observed{UID: "u"}, Now: t0,
			Probes: map[string]Probes{}, Hash: map[string]string{},
		},
	}
}

// settle carries out plans until nothing is left to do, or the agent is killed after this many effects.
func (w *world) settle(effects int) {
	for range 30 {
		p := Compute(w.in)
		w.check(p)
		if idle(p) {
			w.advances(p)
			return
		}
		if w.apply(p, &effects); effects <= 0 {
			return
		}
	}
	w.t.Fatalf("the plans do not come to rest: %+v\nof %+v", Compute(w.in), w.in.Observed)
}

func idle(p Plan) bool {
	return (p.Sandbox.Op == SandboxKeep || p.Sandbox.Op == SandboxNone) && len(p.Kill)+len(p.Start)+len(p.Remove) == 0
}

// advances checks that a plan that waits for a time changes at that time.
func (w *world) advances(p Plan) {
	if p.LookAgain.IsZero() {
		return
	}
	later := w.in
	later.Now = p.LookAgain
	if !p.LookAgain.After(w.in.Now) || idle(Compute(later)) {
		w.t.Fatalf("nothing to do at %v, now %v: %+v", p.LookAgain, w.in.Now, p)
	}
}

// check fails the test if the plan breaks an invariant.
func (w *world) check(p Plan) {
	if end := fmt.Sprint(p.Done, p.Failed); w.ended != "" && w.ended != end {
		w.t.Fatalf("the pod has ended (%s), but now %s: %+v", w.ended, end, p)
	} else if p.Done {
		w.ended = end
	}
	if p.Done && len(p.Start) > 0 {
		w.t.Fatalf("a start in an ended pod: %+v", p)
	}
	for i, s := range p.Start {
		if slices.ContainsFunc(p.Start[:i], func(other Start) bool { return other.Name == s.Name }) {
			w.t.Fatalf("%s starts twice: %+v", s.Name, p)
		}
		for _, c := range w.in.Observed.Containers {
			if c.Name == s.Name && c.State != pod.StateExited && !slices.Contains(p.Remove, c.ID) {
				w.t.Fatalf("%s starts beside %+v", s.Name, c)
			}
		}
		if s.Kind == pod.App && p.Sandbox.Op == SandboxCreate && len(w.in.Pod.Spec.InitContainers) > 0 {
			w.t.Fatalf("%s starts before the init containers of a new sandbox", s.Name)
		}
		if s.Kind == pod.App {
			w.initialized(s)
		}
	}
}

func (w *world) initialized(s Start) {
	for _, k := range pod.Containers(w.in.Pod) {
		if (k.Kind == pod.Init || k.Kind == pod.Sidecar) && !w.through[k.Name] {
			w.t.Fatalf("%s starts before %s is done", s.Name, k.Name)
		}
	}
}

// apply carries out a plan in the order of the steps: the sandbox, then stops, removals and starts.
func (w *world) apply(p Plan, effects *int) {
	one := func() bool { *effects--; return *effects >= 0 }
	o := w.in.Observed
	if p.Done {
		for i := range o.Containers {
			w.exit(&o.Containers[i], 137)
		}
		for i := range o.Sandboxes {
			o.Sandboxes[i].Ready = false
		}
		return
	}
	if p.Sandbox.Op == SandboxCreate && one() {
		w.create(p.Sandbox)
	}
	for _, k := range p.Kill {
		if one() {
			w.exit(w.find(k.ID), 137)
		}
	}
	for _, id := range p.Remove {
		if one() {
			o.Containers = slices.DeleteFunc(o.Containers, func(c pod.ContainerStatus) bool { return c.ID == id })
		}
	}
	if p.RestartingAll {
		clear(w.through)
	}
	for _, s := range p.Start {
		if one() {
			w.start(s, one())
		}
	}
}

func (w *world) create(s Sandbox) {
	o := w.in.Observed
	for i, box := range o.Sandboxes {
		o.Sandboxes[i].Ready = box.Ready && !slices.Contains(s.Stop, box.ID)
	}
	if slices.ContainsFunc(o.Sandboxes, func(b pod.SandboxStatus) bool { return b.Ready }) {
		w.t.Fatalf("a second sandbox: %+v beside %+v", s, o.Sandboxes)
	}
	w.serial++
	box := pod.SandboxStatus{ID: fmt.Sprint("s", w.serial), Attempt: s.Attempt, Ready: true, CreatedAt: w.in.Now,
		HostNetwork: pod.HostNetwork(w.in.Pod)}
	if !box.HostNetwork {
		box.IPs = []string{"10.0.0.1"}
	}
	o.Sandboxes = slices.Insert(o.Sandboxes, 0, box)
	clear(w.through)
}

// start creates a container. The agent may be killed before it runs.
func (w *world) start(s Start, runs bool) {
	o := w.in.Observed
	w.serial++
	w.in.Now = w.in.Now.Add(time.Microsecond)
	c := pod.ContainerStatus{
		ID: fmt.Sprint(s.Name, w.serial), Name: s.Name, SandboxID: o.Sandboxes[0].ID, State: pod.StateCreated,
		CreatedAt:    w.in.Now,
		RestartCount: s.RestartCount, Backoff: s.Backoff, Hash: w.in.Hash[s.Name],
	}
	if runs {
		c.State, c.StartedAt = pod.StateRunning, w.in.Now
		w.began(s)
	}
	o.Containers = slices.Insert(o.Containers, 0, c)
}

func (w *world) began(s Start) {
	if s.Kind == pod.Ephemeral {
		if w.begun[s.Name]++; w.begun[s.Name] > 1 {
			w.t.Fatalf("ephemeral container %s starts again", s.Name)
		}
	}
	if s.Kind == pod.Sidecar && s.StartupProbe == nil {
		w.through[s.Name] = true
	}
}

func (w *world) find(id string) *pod.ContainerStatus {
	o := w.in.Observed
	i := slices.IndexFunc(o.Containers, func(c pod.ContainerStatus) bool { return c.ID == id })
	if i < 0 {
		w.t.Fatalf("the plan names %s, which does not exist", id)
	}
	return &o.Containers[i]
}

func (w *world) exit(c *pod.ContainerStatus, code int32) {
	if !alive(*c) {
		return
	}
	c.State, c.ExitCode, c.FinishedAt = pod.StateExited, code, w.in.Now
	if code == 0 && c.SandboxID == w.in.Observed.Sandboxes[0].ID {
		w.through[c.Name] = true
	}
}

// happen applies one event that the agent did not cause.
func (w *world) happen(what, which byte) {
	o := w.in.Observed
	var c *pod.ContainerStatus
	if len(o.Containers) > 0 {
		c = &o.Containers[int(which)%len(o.Containers)]
	}
	w.in.Now = w.in.Now.Add(time.Second)
	switch what % 8 {
	case 0, 1, 2:
		if c != nil && w.ended == "" {
			w.exit(c, []int32{0, 1, 42}[what%8])
		}
	case 3:
		if c != nil && c.State == pod.StateRunning {
			w.in.Probes[c.ID] = Probes{Startup: Success}
			w.through[c.Name] = true
		}
	case 4:
		if c != nil && c.State == pod.StateRunning {
			w.in.Probes[c.ID] = Probes{Startup: Success, Liveness: Failure}
		}
	case 5:
		if len(o.Sandboxes) > 0 {
			o.Sandboxes[0].Ready = false
		}
	case 6:
		w.in.Now = w.in.Now.Add(time.Duration(which) * 10 * time.Second)
	case 7:
		if c != nil && w.ended == "" {
			w.in.Hash[c.Name] = fmt.Sprint(which)
		}
	}
}
