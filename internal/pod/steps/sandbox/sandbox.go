package sandbox

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/logfile"
	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/plan"
	"github.com/berth-run/berth/internal/pod/worker"
	"github.com/berth-run/berth/internal/record/event"
	"github.com/berth-run/berth/internal/record/timeline"
)

// names returns a pod's host name, DNS configuration and log directory.
type names interface {
	Hostname(p *corev1.Pod) (string, error)
	DNS(p *corev1.Pod) (*runtimeapi.DNSConfig, error)
	LogDir(p *corev1.Pod) string
}

// cgroups returns the parent of the sandbox's cgroup in the runtime's spelling, and ends everything that runs below it.
type cgroups interface {
	Parent(p *corev1.Pod) string
	Empty(ctx context.Context, p *corev1.Pod) error
}

// userns returns the user namespace of a pod, or nil if the pod uses the host's.
type userns interface {
	Mapping(p *corev1.Pod) (*runtimeapi.UserNamespace, error)
}

// kernel checks the abilities of the machine and the runtime.
type kernel interface {
	// CheckUserns returns why a pod cannot have a user namespace of its own, or nil.
	CheckUserns(p *corev1.Pod) error
}

// classes has the RuntimeClasses of this node. The error for a missing one is *object.Missing.
type classes interface {
	RuntimeClass(name string) (*nodev1.RuntimeClass, error)
}

// observer has the pods' states as the runtime reports them.
type observer interface {
	// Refresh reads a pod's state from the runtime before it returns.
	Refresh(ctx context.Context, uid types.UID) error
	// Observed is nil if the runtime has nothing of the pod.
	Observed(uid types.UID) *pod.Observed
}

// network waits until the pod network is ready. If it must wait, it calls why with the cause.
type network interface {
	Await(ctx context.Context, why func(message string)) error
}

// resources converts the resources of pods.
type resources interface {
	// PodResources returns the Resources and Overhead of Given.
	PodResources(p *corev1.Pod) (containers, overhead *runtimeapi.LinuxContainerResources)
}

// Options of Sandboxes.
type Options struct {
	Network   network
	Runtime   runtimeapi.RuntimeServiceClient
	Events    event.Sink
	Names     names
	Cgroups   cgroups
	Userns    userns
	Kernel    kernel
	Resources resources
	Observer  observer
	Classes   classes
	// Limit bounds how many sandboxes are created at the same time. See Gate.
	Limit Gate
	Log   *slog.Logger
}

// Gate limits the number of expensive runtime calls that run at the same time. Enter waits for a place for a call of a
// pod. leave returns it, and may be called again.
type Gate interface {
	Enter(ctx context.Context, pod *corev1.Pod) (leave func(), err error)
}

// info is the sandbox that a pod's containers are created in.
type info struct {
	id     string
	config *runtimeapi.PodSandboxConfig
	ips    []string
}

// Sandboxes makes and ends the sandboxes of a node.
type Sandboxes struct {
	opts Options

	mu    sync.Mutex
	known map[types.UID]info
}

// New returns a Sandboxes that knows no sandbox.
func New(o Options) *Sandboxes {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Sandboxes{opts: o, known: map[types.UID]info{}}
}

// Sandbox returns the sandbox that the pod's containers are created in: its id, its configuration and its addresses,
// the primary one first.
func (s *Sandboxes) Sandbox(uid types.UID) (id string, config *runtimeapi.PodSandboxConfig, ips []string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, ok := s.known[uid]
	return i.id, i.config, i.ips, ok
}

// Step is the sandbox's step in a pod's life.
func (s *Sandboxes) Step() worker.Step {
	return worker.Step{
		Name: "sandbox", Phase: worker.Act, After: []string{"poddir", "cgroup"},
		Setup: s.setup, Teardown: s.teardown,
	}
}

func (s *Sandboxes) setup(ctx context.Context, r *worker.Run) error {
	switch r.Plan.Sandbox.Op {
	case plan.SandboxKeep:
		return s.keep(r)
	case plan.SandboxCreate:
		s.forget(r.Pod.UID)
		r.Tasks.Go(ctx, "sandbox", func(ctx context.Context) error { return s.create(ctx, r) })
	default:
		s.forget(r.Pod.UID)
	}
	return nil
}

// keep makes an existing sandbox available to the containers, even if an earlier process created it.
func (s *Sandboxes) keep(r *worker.Run) error {
	if id, _, _, ok := s.Sandbox(r.Pod.UID); ok && id == r.Plan.Sandbox.ID {
		return nil
	}
	config, err := s.render(r.Pod.Pod, r.Plan.Sandbox.Attempt)
	if err != nil {
		return err
	}
	box, _ := r.Observed.Sandbox()
	s.mu.Lock()
	s.known[r.Pod.UID] = info{id: box.ID, config: config, ips: box.IPs}
	s.mu.Unlock()
	return nil
}

func (s *Sandboxes) render(p *corev1.Pod, attempt uint32) (*runtimeapi.PodSandboxConfig, error) {
	hostname, err := s.opts.Names.Hostname(p)
	if err != nil {
		return nil, fmt.Errorf("choose the pod's host name: %w", err)
	}
	dns, err := s.opts.Names.DNS(p)
	if err != nil {
		return nil, fmt.Errorf("configure DNS: %w", err)
	}
	ids, err := s.opts.Userns.Mapping(p)
	if err != nil {
		return nil, err
	}
	resources, overhead := s.opts.Resources.PodResources(p)
	return Render(p, Given{
		Attempt: attempt, Hostname: hostname, DNS: dns, Userns: ids, Resources: resources, Overhead: overhead,
		LogDir: s.opts.Names.LogDir(p), CgroupParent: s.opts.Cgroups.Parent(p),
	})
}

// PullConfig returns the configuration that the runtime sees with an image pull for a pod. It shows whose pull it is,
// and is made before the pod has a sandbox: without host name, DNS and user namespace, which matter to no pull.
func (s *Sandboxes) PullConfig(p *corev1.Pod) (*runtimeapi.PodSandboxConfig, error) {
	resources, overhead := s.opts.Resources.PodResources(p)
	return Render(p, Given{
		Resources: resources, Overhead: overhead, LogDir: s.opts.Names.LogDir(p),
		CgroupParent: s.opts.Cgroups.Parent(p),
	})
}

// create makes a new sandbox and stops those that it replaces. When it returns, the observed state shows the result.
func (s *Sandboxes) create(ctx context.Context, r *worker.Run) (err error) {
	ctx, span := timeline.Start(ctx, "sandbox")
	defer func() { timeline.End(span, err) }()
	p := r.Pod.Pod
	defer func() {
		if err != nil && ctx.Err() == nil {
			err = reason.Wrap(reason.FailedCreatePodSandBox, err)
			s.opts.Events.Event(event.PodRef(p), corev1.EventTypeWarning, reason.FailedCreatePodSandBox,
				"Failed to create pod sandbox: %s", reason.Message(err))
		}
		unread := s.opts.Observer.Refresh(context.WithoutCancel(ctx), p.UID)
		if err == nil && unread != nil {
			s.opts.Events.Event(event.PodRef(p), corev1.EventTypeWarning, reason.FailedPodSandBoxStatus,
				"Unable to get pod sandbox status: %v", unread)
		}
		err = errors.Join(err, unread)
	}()
	if made, err := s.made(ctx, p.UID, r.Plan.Sandbox.Attempt); err != nil || made {
		return err
	}
	if why := r.Plan.Sandbox.Why; why != "" {
		s.opts.Log.Info("pod sandbox changed, replacing it", "pod", pod.FullName(p), "why", why)
		s.opts.Events.Event(event.PodRef(p), corev1.EventTypeNormal, reason.SandboxChanged,
			"Pod sandbox changed, it will be killed and re-created.")
	}
	for _, id := range r.Plan.Sandbox.Stop {
		if err := s.stop(ctx, id); err != nil {
			return err
		}
	}
	if r.Plan.Sandbox.Attempt > 0 {
		// According to the runtime nothing runs any more. That may be wrong after a shim was killed: the processes it
		// left must not run beside the new ones.
		if err := s.opts.Cgroups.Empty(ctx, p); err != nil {
			return err
		}
	}
	handler, err := s.handler(p)
	if err != nil {
		return err
	}
	if err := checkBandwidth(p); err != nil {
		return err
	}
	config, err := s.render(p, r.Plan.Sandbox.Attempt)
	if err != nil {
		return err
	}
	if config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions() != nil {
		// Admission has checked this before the pod's start. A runtime that has lost user namespaces since then may
		// leave them out without an error.
		if err := s.opts.Kernel.CheckUserns(p); err != nil {
			return fmt.Errorf("give the pod a user namespace: %w", err)
		}
	}
	if err := logfile.MkdirAll(config.LogDirectory, logfile.Depth-2); err != nil {
		return fmt.Errorf("make log directory: %w", err)
	}
	if err := s.awaitNetwork(ctx, p); err != nil {
		return err
	}
	leave, err := s.enter(ctx, p)
	if err != nil {
		return err
	}
	defer leave()
	_, err = s.opts.Runtime.RunPodSandbox(ctx,
		&runtimeapi.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
	return err
}

// made reports whether the runtime already has this or a later attempt of a pod's sandbox, although the plan did not
// know it: an earlier try has made it, and its answer was lost. What runs in it must not be killed. A first attempt
// kills nothing, so the runtime is not asked about it.
func (s *Sandboxes) made(ctx context.Context, uid types.UID, attempt uint32) (bool, error) {
	if attempt == 0 {
		return false, nil
	}
	if err := s.opts.Observer.Refresh(ctx, uid); err != nil {
		return false, fmt.Errorf("look whether the runtime has the sandbox already: %w", err)
	}
	o := s.opts.Observer.Observed(uid)
	return o != nil && len(o.Sandboxes) > 0 && o.Sandboxes[0].Attempt >= attempt, nil
}

// handler returns the runtime handler of a pod. "" is the default one.
func (s *Sandboxes) handler(p *corev1.Pod) (string, error) {
	if p.Spec.RuntimeClassName == nil {
		return "", nil
	}
	class, err := s.opts.Classes.RuntimeClass(*p.Spec.RuntimeClassName)
	if err != nil {
		return "", err
	}
	return class.Handler, nil
}

// awaitNetwork waits for the pod network, unless the pod is on the host network.
func (s *Sandboxes) awaitNetwork(ctx context.Context, p *corev1.Pod) error {
	if pod.HostNetwork(p) {
		return nil
	}
	waited := func() {}
	defer func() { waited() }()
	return s.opts.Network.Await(ctx, func(message string) {
		waited = timeline.Wait(ctx, "the pod network")
		s.opts.Events.Event(event.PodRef(p), corev1.EventTypeWarning, reason.NetworkNotReady,
			"network is not ready: %s", message)
	})
}

func (s *Sandboxes) enter(ctx context.Context, pod *corev1.Pod) (func(), error) {
	defer timeline.Wait(ctx, "a free place to start in")()
	return s.opts.Limit.Enter(ctx, pod)
}

func (s *Sandboxes) stop(ctx context.Context, id string) error {
	_, err := s.opts.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	if err != nil && !cri.IsNotFound(err) {
		return fmt.Errorf("stop sandbox %s: %w", id, err)
	}
	return nil
}

// teardown stops all sandboxes of the pod. If the pod itself is removed, it also removes them with their dead
// containers. Otherwise they stay, because they have the exit codes.
func (s *Sandboxes) teardown(ctx context.Context, r *worker.Run) error {
	s.forget(r.Pod.UID)
	if r.Observed == nil {
		return nil
	}
	for _, box := range r.Observed.Sandboxes {
		// Even a sandbox that is not ready may still have a network.
		if err := s.stop(ctx, box.ID); err != nil {
			s.opts.Events.Event(event.PodRef(r.Pod.Pod), corev1.EventTypeWarning, reason.FailedKillPod,
				"error killing pod: %v", err)
			return err
		}
		if !r.Stop.Remove {
			continue
		}
		_, err := s.opts.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: box.ID})
		if err != nil && !cri.IsNotFound(err) {
			return fmt.Errorf("remove sandbox %s: %w", box.ID, err)
		}
	}
	return s.opts.Observer.Refresh(ctx, r.Pod.UID)
}

func (s *Sandboxes) forget(uid types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, uid)
}
