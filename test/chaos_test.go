package test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/base/netdump"
	"github.com/berth-run/berth/internal/base/pausetest"
	"github.com/berth-run/berth/internal/base/process"
	"github.com/berth-run/berth/internal/model/pod"
)

var (
	chaosTime  = flag.Duration("chaos.time", 0, "how long TestChaos disturbs each agent; 0 skips it")
	chaosKills = flag.Int("chaos.kills", 0, "end TestChaos after this many kills on each runtime, before its time")
	chaosSeed  = flag.Uint64("chaos.seed", 0, "repeat the order of an earlier TestChaos; 0 takes another one")
)

// TestChaos adds, changes and removes pods of several kinds while the agent, shims, containers and the external runtime
// are killed and stopped at random moments. See docs/robustness.md.
func TestChaos(t *testing.T) {
	if *chaosTime == 0 {
		t.Skip("make chaos and make script run it")
	}
	t.Parallel() // with TestScript
	_, seed := dice(t, "-chaos.seed", *chaosSeed)
	for _, runtime := range []string{"embedded", "containerd"} {
		t.Run(runtime, func(t *testing.T) {
			t.Parallel()
			dice, _ := dice(t, "-chaos.seed", seed)
			c := &chaos{subject: newSubject(t, runtime, ""), dice: dice, pods: map[string]*chaosPod{},
				counts: map[string]int{}}
			t.Cleanup(c.report)
			c.run()
			for _, name := range slices.Sorted(maps.Keys(c.counts)) {
				t.Logf("%-24s %5d", name, c.counts[name])
			}
		})
	}
}

// chaosPod is a pod that should exist.
type chaosPod struct {
	name, kind string
	version    string            // the label that it should have
	applied    bool              // by berth apply; otherwise from the manifest directory
	touched    bool              // the test ended a process of it
	ids        map[string]string // the ID of each container as it was seen first
}

// full is the name that the pod has on the node.
func (p *chaosPod) full() string {
	if p.applied {
		return p.name
	}
	return p.name + "-node1"
}

// chaosContainers has the containers that run in a pod of each kind while it exists.
var chaosContainers = map[string][]string{
	"plain": {"app"}, "whole": {"app", "other", "side"}, "host": {"app"}, "claim": {"app"}, "job": {}, "crash": nil,
}

// chaosSpecs has the specs of the kinds of pods. A pod of kind claim is ready when it has written a file into its
// claim.
var chaosSpecs = map[string]string{
	"plain": `{terminationGracePeriodSeconds: 0, containers: [{name: app, image: IMAGE, args: [sleep]}]}`,
	"whole": `
  terminationGracePeriodSeconds: 1
  initContainers:
  - {name: init, image: IMAGE, args: ["true"]}
  - {name: side, image: IMAGE, args: [sleep], restartPolicy: Always}
  containers:
  - name: app
    image: IMAGE
    args: [serve]
    ports: [{containerPort: 8080}]
    readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1, timeoutSeconds: 10}
    lifecycle:
      postStart: {exec: {command: [/workload, "true"]}}
      preStop: {exec: {command: [/workload, "true"]}}
    volumeMounts: [{name: memory, mountPath: /memory}, {name: names, mountPath: /names}]
  - {name: other, image: IMAGE, args: [stubborn], volumeMounts: [{name: memory, mountPath: /memory}]}
  volumes:
  - {name: memory, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
  - {name: names, downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}`,
	"host": `{hostNetwork: true, terminationGracePeriodSeconds: 0,
  containers: [{name: app, image: IMAGE, args: [sleep], resources: {limits: {cpu: 100m, memory: 64Mi}}}]}`,
	"claim": `
  terminationGracePeriodSeconds: 0
  containers:
  - name: app
    image: IMAGE
    args: [append, /data/NAME, line, then, serve]
    readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1, timeoutSeconds: 10}
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: NAME}}]`,
	"job": `{restartPolicy: Never, containers: [{name: app, image: IMAGE, args: [exit, "0", 100ms]}]}`,
	"crash": `{terminationGracePeriodSeconds: 0,
  containers: [{name: app, image: IMAGE, args: [exit, "1", 100ms]}]}`,
}

const chaosClaim = `---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %s}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
`

// chaos is a campaign with the pods that should exist.
type chaos struct {
	*subject
	dice   *rand.Rand
	pods   map[string]*chaosPod
	names  int
	claims []string // whose pod was once ready, and whose data must therefore exist
	before []string // rules and leases with such addresses that others have made
	counts map[string]int
	steps  []string // each thing that was done, with its time, for the report of a failure
}

func (c *chaos) run() {
	c.before = c.rules()
	end := time.Now().Add(*chaosTime)
	for round := 0; time.Now().Before(end) && (*chaosKills == 0 || c.kills() < *chaosKills); round++ {
		for range 20 {
			c.step()
			time.Sleep(time.Duration(c.dice.IntN(200)) * time.Millisecond)
		}
		c.settle()
	}
	c.settle()
	c.keptClaims()
	for _, name := range slices.Sorted(maps.Keys(c.pods)) {
		c.remove(name)
	}
	c.settle()
	c.nothingLeft()
	c.keptClaims()
}

// kills returns how many processes got SIGKILL.
func (c *chaos) kills() (n int) {
	for what, times := range c.counts {
		if strings.HasPrefix(what, "kill") {
			n += times
		}
	}
	return n
}

// step does one random thing.
func (c *chaos) step() {
	type choice struct {
		weight int
		do     func()
	}
	choices := []choice{
		{5, c.add}, {2, c.change}, {3, c.removeOne}, {2, c.killContainer}, {2, c.killShim}, {4, c.killAgent},
		{1, c.stopAgent}, {1, c.stopShim},
	}
	if c.external != nil {
		choices = append(choices, choice{1, c.killRuntime}, choice{1, c.stopRuntime})
	}
	total := 0
	for _, o := range choices {
		total += o.weight
	}
	n := c.dice.IntN(total)
	for _, o := range choices {
		if n -= o.weight; n < 0 {
			o.do()
			return
		}
	}
}

// count counts and records a step, with the pod or process that it concerns.
func (c *chaos) count(what string, whom ...string) {
	c.counts[what]++
	step := append([]string{time.Now().UTC().Format("15:04:05.000"), what}, whom...)
	c.steps = append(c.steps, strings.Join(step, " "))
}

// report shows the last steps if the test has failed.
func (c *chaos) report() {
	if c.t.Failed() {
		c.t.Logf("the last steps:\n%s", strings.Join(c.steps[max(0, len(c.steps)-40):], "\n"))
	}
}

// any returns the name of a random pod, or "" if there is none.
func (c *chaos) any() string {
	if len(c.pods) == 0 {
		return ""
	}
	return slices.Sorted(maps.Keys(c.pods))[c.dice.IntN(len(c.pods))]
}

func (c *chaos) add() {
	if len(c.pods) >= 8 {
		return
	}
	c.names++
	kind := slices.Sorted(maps.Keys(chaosSpecs))[c.dice.IntN(len(chaosSpecs))]
	p := &chaosPod{name: fmt.Sprintf("%s%d", kind, c.names), kind: kind, applied: c.dice.IntN(2) == 0}
	c.count("add "+kind, p.name)
	c.pods[p.name] = p
	c.put(p)
}

// put makes the pod the desired one, with a label that is new each time. That replaces a pod from the manifest
// directory that exists. The label of an applied pod changes in place, and no container restarts for it.
func (c *chaos) put(p *chaosPod) {
	if !p.applied || p.ids == nil {
		p.ids, p.touched = map[string]string{}, false
	}
	spec := strings.NewReplacer("IMAGE", `"example.com/workload:1"`, "NAME", p.name).
		Replace(chaosSpecs[p.kind])
	p.version = fmt.Sprintf("v%d", c.dice.Uint32())
	text := fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, labels: {version: %s}}\nspec: %s\n", p.name,
		p.version, spec)
	if p.kind == "claim" {
		text += fmt.Sprintf(chaosClaim, p.name)
	}
	if p.applied {
		c.ask(func(ctx context.Context) error {
			_, err := c.client.Apply(ctx, []byte(text), client.Apply{Namespace: "default", Origin: p.name})
			return err
		})
		return
	}
	c.manifest(p.name, text)
}

// change changes a label of a pod.
func (c *chaos) change() {
	p := c.pods[c.any()]
	if p == nil {
		return
	}
	c.count("change", p.name)
	c.put(p)
}

func (c *chaos) removeOne() {
	if name := c.any(); name != "" {
		c.remove(name)
	}
}

// remove removes a pod. The claim of a pod from the manifest directory stays, in a manifest of its own.
func (c *chaos) remove(name string) {
	p := c.pods[name]
	c.count("remove", name)
	delete(c.pods, name)
	switch {
	case p.applied:
		c.ask(func(ctx context.Context) error {
			_, err := c.client.Pod(key(p.full())).Delete(ctx, "", nil)
			if err != nil && strings.Contains(err.Error(), "not found") { // an earlier request did it
				return nil
			}
			return err
		})
	case p.kind == "claim":
		c.manifest(p.name, fmt.Sprintf(chaosClaim, p.name))
	default:
		c.manifest(p.name, "")
	}
}

// ask repeats a request until the agent confirms it. An agent that is starting does not answer.
func (c *chaos) ask(request func(context.Context) error) {
	c.wait("the agent to confirm a request", patience, request)
}

// process returns a random container of the pods that should exist, as its pod's name and its process.
func (c *chaos) process() (p *chaosPod, process int) {
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
	defer cancel()
	p = c.pods[c.any()]
	if p == nil {
		return nil, 0
	}
	all, err := c.running(ctx, p)
	if err != nil || len(all) == 0 {
		return nil, 0
	}
	s, err := c.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{
		ContainerId: all[c.dice.IntN(len(all))].Id, Verbose: true})
	if err != nil {
		return nil, 0
	}
	process, err = processOf(s.Info)
	if err != nil {
		return nil, 0
	}
	return p, process
}

// running lists the running containers of a pod, or of all pods if p is nil.
func (c *chaos) running(ctx context.Context, p *chaosPod) ([]*runtimeapi.Container, error) {
	filter := &runtimeapi.ContainerFilter{
		State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING}}
	if p != nil {
		filter.LabelSelector = map[string]string{pod.LabelPodName: p.full()}
	}
	all, err := c.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: filter})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all.Containers, func(a, b *runtimeapi.Container) int { return strings.Compare(a.Id, b.Id) })
	return all.Containers, nil
}

func (c *chaos) killContainer() {
	if p, process := c.process(); p != nil {
		p.touched = true
		c.count("kill container", p.name, strconv.Itoa(process))
		_ = unix.Kill(process, unix.SIGKILL) // it may have ended by itself
	}
}

// shim returns the shim of all pods. With an external runtime it returns a random pod and its shim, which is the parent
// of the pod's containers. It returns 0 if there is none.
func (c *chaos) shim() (shim int, p *chaosPod) {
	if c.external == nil {
		for id, line := range c.shims() {
			if strings.Contains(line, "\x00serve\x00") && process.Executes(id) {
				return id, nil
			}
		}
		return 0, nil
	}
	p, container := c.process()
	if p == nil {
		return 0, nil
	}
	shim, err := process.Parent(container)
	if err != nil || !strings.Contains(strings.Join(process.Arguments(shim), " "), "shim") {
		return 0, nil // the container has ended, or its shim has
	}
	return shim, p
}

// killShim kills a shim. No container ends with the shim of all pods.
func (c *chaos) killShim() {
	shim, owner := c.shim()
	if shim == 0 {
		return
	}
	_ = unix.Kill(shim, unix.SIGKILL) // it may have ended by itself
	if owner != nil {
		c.count("kill shim", owner.name, strconv.Itoa(shim))
		owner.touched = true
		return
	}
	c.count("kill shim", strconv.Itoa(shim))
	for _, p := range c.pods {
		// A postStart handler that is just being started fails, which restarts its container. Linux before 6.15
		// forgets the exit code of a job that ends at this moment.
		p.touched = p.touched || p.kind == "job" || len(p.ids) == 0
	}
}

// stopShim stops a shim for up to 5 s. No container restarts for it.
func (c *chaos) stopShim() {
	shim, _ := c.shim()
	if shim == 0 {
		return
	}
	process, err := os.FindProcess(shim) // by descriptor, so that no other process gets the signals
	check(c.t, err)
	defer func() { check(c.t, process.Release()) }()
	c.count("stop shim", strconv.Itoa(shim))
	if err := c.pause(process); !errors.Is(err, os.ErrProcessDone) { // it may have ended by itself
		check(c.t, err)
	}
}

func (c *chaos) killAgent() {
	c.count("kill agent")
	c.kill()
	time.Sleep(time.Duration(c.dice.IntN(300)) * time.Millisecond)
	c.launch()
}

func (c *chaos) stopAgent() {
	c.count("stop agent")
	check(c.t, c.pause(c.agent.Process))
}

func (c *chaos) killRuntime() {
	c.count("kill runtime")
	check(c.t, c.external.Stop(unix.SIGKILL))
	time.Sleep(time.Duration(c.dice.IntN(300)) * time.Millisecond)
	check(c.t, c.external.Start(c.t.Context()))
}

func (c *chaos) stopRuntime() {
	c.count("stop runtime")
	check(c.t, c.pause(c.external.Process()))
}

// pause stops a process for up to 5 s.
func (c *chaos) pause(p *os.Process) error {
	if err := pausetest.Pause(p); err != nil {
		return err
	}
	time.Sleep(time.Duration(c.dice.IntN(5000)) * time.Millisecond)
	return pausetest.Resume(p)
}

// settle waits until the node has exactly the desired pods, and checks what must hold all the time.
func (c *chaos) settle() {
	c.count("check")
	c.wait("the node to have the desired pods", patience, c.converged)
	c.untouched()
}

// converged returns an error if the pods differ from the desired ones.
func (c *chaos) converged(ctx context.Context) error {
	list, err := c.client.Pods(ctx, client.Select{Namespace: "default"})
	if err != nil {
		return err
	}
	left := maps.Clone(c.pods)
	for i := range list.Items {
		p := &list.Items[i]
		name := strings.TrimSuffix(p.Name, "-node1")
		d := c.pods[name]
		if d == nil || d.full() != p.Name {
			return fmt.Errorf("pod %s still exists: %s", p.Name, describe(p))
		}
		delete(left, name)
		if !arrived(d, p) {
			return fmt.Errorf("pod %s: %s", p.Name, describe(p))
		}
		if d.kind == "claim" && !slices.Contains(c.claims, name) {
			c.claims = append(c.claims, name)
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("pods are missing: %q", slices.Sorted(maps.Keys(left)))
	}
	return c.containersMatch(ctx)
}

// arrived says whether a pod is the last version, in the state that its kind leads to.
func arrived(d *chaosPod, p *corev1.Pod) bool {
	if p.Labels["version"] != d.version {
		return false
	}
	switch d.kind {
	case "job":
		// A runtime that is killed while it starts a container does not know whether the container has run.
		return shows(p, "Succeeded") || shows(p, "Failed") && (d.touched || shows(p, "Unknown") ||
			mayHaveRun(p.Status.ContainerStatuses[0].State.Terminated))
	case "crash":
		return shows(p, "restarts>=1")
	}
	return shows(p, "Ready")
}

// containersMatch compares the runtime's running containers and ready sandboxes with the desired pods.
func (c *chaos) containersMatch(ctx context.Context) error {
	all, err := c.running(ctx, nil)
	if err != nil {
		return err
	}
	names := map[string][]string{}
	for _, x := range all {
		owner := x.Labels[pod.LabelPodName]
		names[owner] = append(names[owner], x.Metadata.Name)
	}
	boxes, err := c.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	ready := map[string]int{}
	for _, b := range boxes.Items {
		owner := b.Labels[pod.LabelPodName]
		if b.State == runtimeapi.PodSandboxState_SANDBOX_READY {
			ready[owner]++
		}
		owns := func(p *chaosPod) bool { return p.full() == owner }
		if !slices.ContainsFunc(slices.Collect(maps.Values(c.pods)), owns) {
			return fmt.Errorf("the runtime has a sandbox of %s, which is removed", owner)
		}
	}
	for _, p := range c.pods {
		got := names[p.full()]
		slices.Sort(got)
		want := chaosContainers[p.kind]
		if p.kind != "crash" && !slices.Equal(got, want) {
			return fmt.Errorf("containers %q of %s run, want %q", got, p.full(), want)
		}
		if len(want) > 0 && ready[p.full()] != 1 {
			return fmt.Errorf("%s has %d ready sandboxes", p.full(), ready[p.full()])
		}
		delete(names, p.full())
	}
	for owner, containers := range names {
		return fmt.Errorf("containers %q of %s run, which is removed", containers, owner)
	}
	return nil
}

// untouched checks the pods whose processes the test did not end: no container has restarted, each has one process,
// and each start has at most one event.
func (c *chaos) untouched() {
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	for _, p := range c.pods {
		if p.touched || len(chaosContainers[p.kind]) == 0 {
			continue
		}
		all, err := c.running(ctx, p)
		check(c.t, err)
		for _, x := range all {
			name := x.Metadata.Name
			if first := p.ids[name]; x.Metadata.Attempt > 0 || first != "" && first != x.Id {
				end := c.lastEnd(ctx, p, name)
				if p.touched = mayHaveRun(end); p.touched {
					break
				}
				c.t.Fatalf("container %s of %s is another one, attempt %d, although nobody touched it; before: %v",
					name, p.full(), x.Metadata.Attempt, end)
			}
			p.ids[name] = x.Id
			s, err := c.runtime.ContainerStatus(ctx,
				&runtimeapi.ContainerStatusRequest{ContainerId: x.Id, Verbose: true})
			check(c.t, err)
			process, err := processOf(s.Info)
			check(c.t, err)
			if n := len(processesBeside(process)); n != 1 {
				c.t.Fatalf("container %s of %s has %d processes", name, p.full(), n)
			}
			c.startedOnce(ctx, x)
		}
	}
}

// lastEnd is how a container has ended before its present run, nil if nothing is known.
func (c *chaos) lastEnd(ctx context.Context, p *chaosPod, name string) *corev1.ContainerStateTerminated {
	now, err := c.client.Pod(key(p.full())).Get(ctx)
	check(c.t, err)
	for _, s := range slices.Concat(now.Status.InitContainerStatuses, now.Status.ContainerStatuses) {
		if s.Name == name {
			return s.LastTerminationState.Terminated
		}
	}
	return nil
}

// mayHaveRun reports whether a container was killed with the agent while the runtime started its process. It may have
// run for a moment, so the agent counts the next one as a restart, and a job has failed.
func mayHaveRun(end *corev1.ContainerStateTerminated) bool {
	return end != nil && end.Reason == "StartError" &&
		strings.HasPrefix(end.Message, "failed to start containerd task") &&
		strings.Contains(end.Message, "context canceled")
}

// startedOnce checks that a container has no second event of its start.
func (c *chaos) startedOnce(ctx context.Context, x *runtimeapi.Container) {
	events, err := c.client.Events(ctx, client.Select{Namespace: "default", Fields: "reason=Started"})
	check(c.t, err)
	n := 0
	for _, e := range events.Items {
		if string(e.InvolvedObject.UID) == x.Labels[pod.LabelPodUID] &&
			strings.HasSuffix(e.InvolvedObject.FieldPath, "{"+x.Metadata.Name+"}") {
			n += int(max(1, e.Count))
		}
	}
	if n > 1 {
		c.t.Fatalf("container %s of %s has %d events of its one start", x.Metadata.Name, x.Labels[pod.LabelPodName], n)
	}
}

// processesBeside lists the processes in the cgroup of a process.
func processesBeside(process int) []string {
	groups, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", process))
	for line := range strings.Lines(string(groups)) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		dir := "/sys/fs/cgroup"
		switch {
		case len(fields) < 3 || fields[1] != "" && fields[1] != "pids":
			continue
		case fields[1] != "":
			dir += "/" + fields[1]
		}
		if text, err := os.ReadFile(filepath.Join(dir, fields[2], "cgroup.procs")); err == nil {
			return strings.Fields(string(text))
		}
	}
	return nil
}

// nothingLeft checks that no directory, mount, network namespace, cgroup, network interface, packet filter rule, lease
// or shim of a removed pod exists.
func (c *chaos) nothingLeft() {
	c.wait("everything of the pods to be removed", patience, func(context.Context) error {
		left := append(c.directoriesLeft(), c.cgroupsLeft()...)
		if c.forgets() {
			left = append(left, c.mountsLeft(c.root)...)
		} else {
			traces := tracesOf(c.root, c.place, c.external)
			left = append(left, c.mountsLeft(append(traces.dirs, traces.memory...)...)...)
			left = append(left, c.links()...)
			left = append(left, slices.DeleteFunc(c.rules(), func(rule string) bool {
				return slices.Contains(c.before, rule)
			})...)
			left = append(left, c.shimsLeft()...)
		}
		if len(left) > 0 {
			return fmt.Errorf("left: %q", left)
		}
		return nil
	})
}

// forgets reports whether the runtime may have things of removed pods that the agent cannot see. A containerd that is
// killed while it makes a sandbox forgets its network and its shim.
func (c *chaos) forgets() bool { return c.counts["kill runtime"] > 0 }

// directoriesLeft lists directories of pods, and what an embedded runtime has for each sandbox and container.
func (c *chaos) directoriesLeft() (left []string) {
	dirs := []string{"pods"}
	if c.external == nil {
		dirs = append(dirs, "run/runtime/exec", "run/runtime/holders", "run/runtime/sandboxes",
			"run/runtime/tasks/k8s.io")
		for _, kind := range []string{"containers", "sandboxes", "netns"} {
			dirs = append(dirs, "run/runtime/io.containerd.grpc.v1.cri/"+kind)
		}
	}
	for _, dir := range dirs {
		entries, err := os.ReadDir(filepath.Join(c.root, dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			check(c.t, err)
		}
		for _, entry := range entries {
			left = append(left, "entry "+dir+"/"+entry.Name())
		}
	}
	return left
}

// mountsLeft lists the mounts below directories, and overlays of layers there. They include network namespaces, which
// are mounted on files.
func (c *chaos) mountsLeft(dirs ...string) (left []string) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	check(c.t, err)
	for line := range strings.Lines(string(mounts)) {
		if slices.ContainsFunc(dirs, func(dir string) bool {
			return strings.Contains(line, " "+dir+"/") || strings.Contains(line, "="+dir+"/")
		}) {
			left = append(left, "mount "+line)
		}
	}
	return left
}

// cgroupsLeft lists cgroups of pods below the campaign's own cgroup.
func (c *chaos) cgroupsLeft() (left []string) {
	for _, root := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids"} {
		_ = filepath.WalkDir(filepath.Join(root, c.cgroup()),
			func(path string, entry fs.DirEntry, err error) error {
				if err == nil && entry.IsDir() && strings.HasPrefix(entry.Name(), "pod") {
					left = append(left, "cgroup "+path)
				}
				return nil // a cgroup that is gone is not left
			})
	}
	return left
}

// links lists the network interfaces of pods, which are attached to the bridge of the pods.
func (c *chaos) links() (left []string) {
	links, err := netdump.Complete(netlink.LinkList)
	check(c.t, err)
	bridge := tracesOf(c.root, c.place, c.external).bridge
	for _, link := range links {
		master, err := netlink.LinkByIndex(link.Attrs().MasterIndex)
		if err == nil && master.Attrs().Name == bridge {
			left = append(left, "network interface "+link.Attrs().Name)
		}
	}
	return left
}

// rules lists rules of the packet filter, and leases, that name the address of a pod.
func (c *chaos) rules() (all []string) {
	address := regexp.MustCompile(fmt.Sprintf(`\b(?:10\.20[34]\.%[1]d\.|fd00:b:%[1]d::)([0-9a-f]+)`, c.place))
	ofPod := func(text string) bool {
		return slices.ContainsFunc(address.FindAllStringSubmatch(text, -1), func(found []string) bool {
			return !slices.Contains([]string{"0", "1", "255"}, found[1]) // the range, the bridge, all hosts
		})
	}
	rules, err := exec.Command("nft", "list", "ruleset").Output()
	check(c.t, err)
	for line := range strings.Lines(string(rules)) {
		if ofPod(line) {
			all = append(all, "rule "+strings.TrimSpace(line))
		}
	}
	for _, dir := range tracesOf(c.root, c.place, c.external).dirs {
		_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			named := filepath.Base(path) // the plugin host-local names its files after addresses
			if filepath.Base(filepath.Dir(path)) == "leases" {
				text, _ := os.ReadFile(path) // a file that is gone is not left
				named = string(text)
			}
			if err == nil && !entry.IsDir() && ofPod(named) {
				all = append(all, "lease "+path)
			}
			return nil // a file that is gone is not left
		})
	}
	return all
}

// shims returns the command lines of the runtime's shims by process.
func (c *chaos) shims() map[int]string {
	all := map[int]string{}
	dirs := tracesOf(c.root, c.place, c.external).dirs
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range files {
		line, _ := os.ReadFile(file)
		contains := func(part string) bool { return strings.Contains(string(line), part) }
		process, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err == nil && contains("containerd-shim") && slices.ContainsFunc(dirs, contains) {
			all[process] = string(line)
		}
	}
	return all
}

// shimsLeft lists shims of the runtime.
func (c *chaos) shimsLeft() (left []string) {
	for line := range maps.Values(c.shims()) {
		left = append(left, fmt.Sprintf("shim %q", line))
	}
	return left
}

// keptClaims checks that each claim whose pod was once ready has its data.
func (c *chaos) keptClaims() {
	found := map[string]bool{}
	check(c.t, filepath.WalkDir(c.root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // the agent works meanwhile
			}
			return err
		}
		if strings.HasPrefix(entry.Name(), "claim") && entry.Type().IsRegular() {
			found[entry.Name()] = true
		}
		return nil
	}))
	for _, name := range c.claims {
		if !found[name] {
			c.t.Fatalf("the data of claim %s is gone", name)
		}
	}
	c.counts["claims with data"] = len(c.claims)
}
