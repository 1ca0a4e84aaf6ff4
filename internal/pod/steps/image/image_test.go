package image

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/cri/critest/fake"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/worker"
)

const remote = "registry.test/app:1" // an image of the registry that the node does not have

// node is an Images on a fake runtime, with its events.
type node struct {
	*Images
	fake *fake.Runtime

	mu   sync.Mutex
	said []string
}

func newNode(t *testing.T, parallel int) *node {
	n := &node{fake: fake.New(t)}
	n.fake.Publish(remote)
	n.Images = New(Options{Client: n.fake.Client(cri.Options{}).Images, Events: n, Parallel: parallel, Now: time.Now})
	return n
}

func (n *node) Event(ref corev1.ObjectReference, kind, reason, format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.said = append(n.said,
		fmt.Sprintf("%s %s %s %s: %s", ref.Name, ref.FieldPath, kind, reason, fmt.Sprintf(format, args...)))
}

// events returns the events since the last call.
func (n *node) events() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	said := n.said
	n.said = nil
	return said
}

func (n *node) pulls() int { return len(n.fake.Calls("PullImage")) }

func (n *node) ensure(t *testing.T, p *corev1.Pod) (*runtimeapi.Image, error) {
	t.Helper()
	return n.Ensure(t.Context(), p, pod.Containers(p)[0])
}

func podOf(name, image string, policy corev1.PullPolicy) *corev1.Pod {
	p := &corev1.Pod{}
	p.Name, p.UID = name, types.UID("uid-"+name)
	p.Spec.Containers = []corev1.Container{{Name: "app", Image: image, ImagePullPolicy: policy}}
	return p
}

func TestEnsure(t *testing.T) {
	registry := func(code codes.Code, message string) fake.Fault {
		return fake.Fault{Method: "PullImage", Err: status.Error(code, message)}
	}
	cases := []struct {
		name   string
		image  string
		policy corev1.PullPolicy
		fault  fake.Fault
		reason string // "" for success
		says   string
		events []string
	}{
		{name: "present", image: fake.Image, policy: corev1.PullIfNotPresent,
			events: []string{`Normal Pulled: Container image "berth.test/workload:latest" already present on machine`}},
		{name: "never pulled", image: remote, policy: corev1.PullNever,
			reason: reason.ErrImageNeverPull, says: "is not present with pull policy of Never",
			events: []string{
				`Warning ErrImageNeverPull: Container image "registry.test/app:1" is not present with pull policy ` +
					`of Never`}},
		{name: "pulled", image: remote, policy: corev1.PullIfNotPresent,
			fault: fake.Fault{Method: "PullImage", Delay: 1234567 * time.Microsecond},
			events: []string{`Normal Pulling: Pulling image "registry.test/app:1"`,
				`Normal Pulled: Successfully pulled image "registry.test/app:1" in 1.234s (1.234s including ` +
					`waiting). Image size: 1048576 bytes.`}},
		{name: "always", image: fake.Image,
			events: []string{`Normal Pulling: Pulling image "berth.test/workload:latest"`,
				`Normal Pulled: Successfully pulled image "berth.test/workload:latest" in 0s (0s including ` +
					`waiting). Image size: 1048576 bytes.`}},
		{name: "bad name", image: "UPPER case", reason: reason.InvalidImageName,
			says: `couldn't parse image name "UPPER case": invalid reference format`,
			events: []string{
				`Warning InspectFailed: Failed to apply default image tag "UPPER case": couldn't parse image name ` +
					`"UPPER case": invalid reference format: repository name (library/UPPER case) must be lowercase`}},
		{name: "no answer", image: remote, policy: corev1.PullIfNotPresent, reason: reason.ImageInspectError,
			says:  "disk on fire",
			fault: fake.Fault{Method: "ImageStatus", Err: errors.New("disk on fire")},
			events: []string{
				`Warning InspectFailed: Failed to inspect image "registry.test/app:1": ImageStatus: disk on fire`}},
		{name: "refused", image: remote, policy: corev1.PullIfNotPresent, reason: reason.ErrImagePull,
			says:  "connection refused",
			fault: registry(codes.Unknown, "connection refused"),
			events: []string{`Normal Pulling: Pulling image "registry.test/app:1"`,
				`Warning Failed: Failed to pull image "registry.test/app:1": PullImage: connection refused`}},
		{name: "registry unavailable", image: remote, policy: corev1.PullIfNotPresent,
			reason: reason.RegistryUnavailable,
			says:   "image pull failed for registry.test/app:1 because the registry is unavailable: 503",
			fault:  registry(codes.Unknown, "RegistryUnavailable: 503"),
			events: []string{`Normal Pulling: Pulling image "registry.test/app:1"`,
				`Warning Failed: Failed to pull image "registry.test/app:1": PullImage: RegistryUnavailable: 503`}},
		{name: "bad signature", image: remote, policy: corev1.PullIfNotPresent,
			reason: reason.SignatureValidationFailed,
			says:   "image pull failed for registry.test/app:1 because the signature validation failed",
			fault:  registry(codes.Unknown, "SignatureValidationFailed"),
			events: []string{`Normal Pulling: Pulling image "registry.test/app:1"`,
				`Warning Failed: Failed to pull image "registry.test/app:1": PullImage: SignatureValidationFailed`}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t, 0)
				n.fake.Inject(c.fault)
				image, err := n.ensure(t, podOf("p", c.image, c.policy))
				if reason.Of(err) != c.reason || !strings.Contains(reason.Message(err), c.says) {
					t.Errorf("got %v, want %s with %q", err, c.reason, c.says)
				}
				if (err == nil) != (image.GetId() != "") {
					t.Errorf("image %v with error %v", image, err)
				}
				for i := range c.events {
					c.events[i] = "p spec.containers{app} " + c.events[i]
				}
				if diff := cmp.Diff(c.events, n.events()); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, 0)
		p := podOf("p", "registry.test/gone:1", corev1.PullIfNotPresent)
		for _, delay := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
			before := n.pulls()
			if _, err := n.ensure(t, p); reason.Of(err) != reason.ErrImagePull {
				t.Fatalf("pull: %v", err)
			}
			due := time.Now().Add(delay * time.Second)
			_, err := n.ensure(t, p)
			var retry *worker.RetryError
			if reason.Of(err) != reason.ImagePullBackOff || !errors.As(err, &retry) || !retry.At.Equal(due) {
				t.Fatalf("in backoff: %v at %v, want %v", err, retry, due)
			}
			if want := `Back-off pulling image "registry.test/gone:1": ErrImagePull: PullImage: image ` +
				`"registry.test/gone:1": not found`; reason.Message(err) != want {
				t.Errorf("message %q, want %q", reason.Message(err), want)
			}
			if got := n.pulls() - before; got != 1 {
				t.Errorf("%d pulls", got)
			}
			time.Sleep(time.Until(due))
		}
		time.Sleep(backoffExpiry)
		_, _ = n.ensure(t, p)
		if _, err := n.ensure(t, p); !strings.Contains(err.Error(), "Back-off") {
			t.Errorf("after a long rest: %v", err)
		}
		if got := n.backoff(p, p.Spec.Containers[0].Image).delay; got != backoffFirst {
			t.Errorf("a long rest did not reset the delay: %v", got)
		}
		n.Forget(p.UID)
		if _, err := n.ensure(t, p); reason.Of(err) != reason.ErrImagePull {
			t.Errorf("a forgotten pod still backs off: %v", err)
		}
	})
}

// secretsOf has the pull Secrets of all pods.
type secretsOf map[string]*corev1.Secret

func (s secretsOf) Secret(_, name string) (*corev1.Secret, error) {
	if found := s[name]; found != nil {
		return found, nil
	}
	return nil, &object.Missing{Key: object.Key{Kind: object.Secret, Name: name}}
}

// A Secret that appears after a failed pull without it causes a new attempt at once.
func TestSecretEndsBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, have := newNode(t, 0), secretsOf{}
		n.access.secrets = have
		p := podOf("p", "registry.test/gone:1", corev1.PullIfNotPresent)
		p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "late"}}
		_, err := n.ensure(t, p)
		keys, only := object.Waits(err)
		if want := []object.Key{{Kind: object.Secret, Namespace: p.Namespace, Name: "late"}}; !slices.Equal(keys,
			want) || only {
			t.Errorf("it waits for %v (only: %v), want %v", keys, only, want)
		}
		reasons := []string{reason.Of(err)}
		for _, password := range []string{"", "old", "old", "new"} {
			if password != "" {
				have["late"] = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "late"},
					Data: map[string][]byte{"password": []byte(password)}}
			}
			_, err := n.ensure(t, p)
			reasons = append(reasons, reason.Of(err))
		}
		want := []string{reason.ErrImagePull, reason.ImagePullBackOff, reason.ErrImagePull, reason.ImagePullBackOff,
			reason.ErrImagePull}
		if diff := cmp.Diff(want, reasons); diff != "" {
			t.Errorf("reasons (-want +got):\n%s", diff)
		}
	})
}

// waiting calls Ensure for some pods and returns a channel with the results.
func waiting(ctx context.Context, n *node, pods ...*corev1.Pod) <-chan error {
	ended := make(chan error, len(pods))
	for _, p := range pods {
		go func() {
			_, err := n.Ensure(ctx, p, pod.Containers(p)[0])
			ended <- err
		}()
	}
	return ended
}

func TestPodsShareAPull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, 1)
		n.fake.Inject(fake.Fault{Method: "PullImage", Delay: time.Minute})
		ended := waiting(t.Context(), n,
			podOf("a", remote, corev1.PullIfNotPresent), podOf("b", "registry.test/app:1", corev1.PullAlways))
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if n.pulls() != 1 {
			t.Errorf("%d pulls of one image", n.pulls())
		}
	})
}

// boxes renders the part of a pull that shows whose it is.
type boxes struct{}

func (boxes) PullConfig(p *corev1.Pod) (*runtimeapi.PodSandboxConfig, error) {
	return &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: p.Name, Namespace: p.Namespace},
		Annotations: p.Annotations}, nil
}

// A runtime may choose a snapshotter by the annotations, and a policy for signatures by the namespace.
func TestPullNamesItsPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, 0)
		n.sandboxes = boxes{}
		n.fake.Inject(fake.Fault{Method: "PullImage", Delay: time.Minute})
		in := func(namespace, name string, annotations map[string]string) *corev1.Pod {
			p := podOf(name, remote, corev1.PullAlways)
			p.Namespace, p.Annotations = namespace, annotations
			return p
		}
		lazy := map[string]string{"io.containerd.cri.runtime-handler": "lazy"}
		ended := waiting(t.Context(), n,
			in("one", "a", map[string]string{pod.AnnotationConfigHash: "1"}),
			in("one", "b", map[string]string{pod.AnnotationConfigHash: "2"}),
			in("one", "c", lazy), in("two", "d", nil))
		for range 4 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		var got []string
		for _, call := range n.fake.Calls("PullImage") {
			r := call.Request.(*runtimeapi.PullImageRequest)
			got = append(got, fmt.Sprint(r.SandboxConfig.GetMetadata().GetNamespace(), " ",
				r.Image.Annotations["io.containerd.cri.runtime-handler"], " ", len(r.SandboxConfig.GetAnnotations())))
		}
		slices.Sort(got)
		if diff := cmp.Diff([]string{"one  1", "one lazy 1", "two  0"}, got); diff != "" {
			t.Errorf("pulls (-want +got):\n%s", diff)
		}
	})
}

func TestFailureOfASharedPullCountsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, 0)
		n.fake.Inject(fake.Fault{Method: "PullImage", Delay: time.Second, Err: errors.New("no")})
		p := podOf("p", remote, corev1.PullIfNotPresent)
		ended := waiting(t.Context(), n, p, p)
		for range 2 {
			if err := <-ended; reason.Of(err) != reason.ErrImagePull {
				t.Error(err)
			}
		}
		if got := n.backoff(p, remote).delay; got != backoffFirst {
			t.Errorf("delay %v after one failure", got)
		}
	})
}

func TestPullsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, 2)
		n.fake.Inject(fake.Fault{Method: "PullImage", Delay: time.Minute})
		var pods []*corev1.Pod
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			n.fake.Publish("registry.test/" + name + ":1")
			pods = append(pods, podOf(name, "registry.test/"+name+":1", corev1.PullIfNotPresent))
		}
		begin := time.Now()
		ended := waiting(t.Context(), n, pods...)
		synctest.Wait()
		if n.pulls() != 2 {
			t.Errorf("%d pulls at a time", n.pulls())
		}
		for range pods {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(begin); took != 3*time.Minute {
			t.Errorf("5 pulls by 2 took %v", took)
		}
		var last string
		for _, e := range n.events() {
			if strings.Contains(e, "Successfully") {
				last = e
			}
		}
		if !strings.Contains(last, "in 1m0s (3m0s including waiting)") {
			t.Errorf("last event %q", last)
		}
	})
}

func TestPullEndsWithItsLastPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, 0)
		ended := make(chan struct{})
		n.pool.runtime = store{endings{n.pool.runtime, ended}}
		n.fake.Inject(fake.Fault{Method: "PullImage", Hang: true})
		first, leaveFirst := context.WithCancel(t.Context())
		second, leaveSecond := context.WithCancel(t.Context())
		one := waiting(first, n, podOf("a", remote, corev1.PullIfNotPresent))
		two := waiting(second, n, podOf("b", remote, corev1.PullIfNotPresent))
		synctest.Wait()

		leaveFirst()
		if err := <-one; !errors.Is(err, context.Canceled) {
			t.Errorf("a deleted pod: %v", err)
		}
		select {
		case <-ended:
			t.Error("the pull ended while a pod waits for it")
		default:
		}

		begin := time.Now()
		leaveSecond()
		if err := <-two; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		<-ended
		if took := time.Since(begin); took != 0 {
			t.Errorf("it took %v to end", took)
		}
		if _, ok := n.pods["uid-a"]; ok {
			t.Error("an interrupted pull counts as a failure")
		}
		for _, e := range n.events() {
			if !strings.Contains(e, "Pulling") {
				t.Errorf("event %q", e)
			}
		}
	})
}

// endings reports when a PullImage call has ended.
type endings struct {
	client
	ended chan struct{}
}

func (e endings) PullImage(ctx context.Context, r *runtimeapi.PullImageRequest,
	o ...grpc.CallOption) (*runtimeapi.PullImageResponse, error) {
	defer close(e.ended)
	return e.client.PullImage(ctx, r, o...)
}

func TestPulledImageThatIsNotThere(t *testing.T) {
	n := newNode(t, 0)
	n.fake.Inject(fake.Fault{Method: "ImageStatus", Answer: func(any) any {
		return &runtimeapi.ImageStatusResponse{}
	}})
	_, err := n.ensure(t, podOf("p", remote, corev1.PullAlways))
	if reason.Of(err) != reason.ErrImagePull || !strings.Contains(err.Error(), "does not list it") {
		t.Error(err)
	}
}

// setUp runs the step's setup for a pod.
func (n *node) setUp(t *testing.T, p *corev1.Pod, o *pod.Observed) {
	t.Helper()
	if err := n.Step().Setup(t.Context(), &worker.Run{Pod: &pod.Pod{Pod: p}, Observed: o}); err != nil {
		t.Error(err)
	}
}

func TestStepPullsAllAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, 0)
		n.fake.Publish("registry.test/init:1")
		n.fake.Inject(fake.Fault{Method: "PullImage", Delay: time.Minute})
		p := podOf("p", remote, corev1.PullAlways)
		p.Spec.InitContainers = []corev1.Container{
			{Name: "init", Image: "registry.test/init:1"},
			{Name: "local", Image: fake.Image, ImagePullPolicy: corev1.PullIfNotPresent},
		}
		begin := time.Now()
		n.setUp(t, p, nil)
		if took := time.Since(begin); took != time.Minute {
			t.Errorf("two pulls took %v", took)
		}
		for _, c := range pod.Containers(p) {
			if _, err := n.Ensure(t.Context(), p, c); err != nil {
				t.Error(err)
			}
		}
		if n.pulls() != 2 {
			t.Errorf("%d pulls: what was pulled ahead was pulled again", n.pulls())
		}

		// A restart pulls again, because the policy is Always.
		if _, err := n.Ensure(t.Context(), p, pod.Containers(p)[2]); err != nil || n.pulls() != 3 {
			t.Errorf("restart: %v, %d pulls", err, n.pulls())
		}
	})
}

// A pod that must wait has its images pulled. Its step does not pull them again, except those whose pull was cancelled.
func TestPrefetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, 0)
		n.fake.Inject(fake.Fault{Method: "PullImage", Delay: time.Minute})
		p := podOf("p", remote, corev1.PullAlways)
		n.Prefetch(t.Context(), &pod.Pod{Pod: p})
		n.setUp(t, p, nil)
		if _, err := n.ensure(t, p); err != nil || n.pulls() != 1 {
			t.Errorf("%v after %d pulls, want one", err, n.pulls())
		}

		given, cancel := context.WithCancel(t.Context())
		q := podOf("q", remote, corev1.PullAlways)
		time.AfterFunc(time.Second, cancel)
		n.Prefetch(given, &pod.Pod{Pod: q})
		n.setUp(t, q, nil)
		if _, err := n.ensure(t, q); err != nil || n.pulls() != 3 {
			t.Errorf("%v after %d pulls, want the one that was given up and another", err, n.pulls())
		}
	})
}

func TestPullAheadGetsStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, 0)
		p := podOf("p", remote, corev1.PullAlways)
		n.setUp(t, p, nil)
		time.Sleep(aheadLife)
		if _, err := n.ensure(t, p); err != nil || n.pulls() != 2 {
			t.Errorf("%v after %d pulls", err, n.pulls())
		}
	})
}

func TestFailedPullAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, 0)
		remove := n.fake.Inject(fake.Fault{Method: "PullImage", Err: errors.New("no")})
		p := podOf("p", remote, corev1.PullAlways)
		n.setUp(t, p, nil)
		for _, want := range []string{reason.ErrImagePull, reason.ImagePullBackOff} {
			if _, err := n.ensure(t, p); reason.Of(err) != want {
				t.Errorf("%v, want %s", err, want)
			}
		}
		n.setUp(t, p, nil) // during its backoff: pulls nothing
		if n.pulls() != 1 {
			t.Errorf("%d pulls", n.pulls())
		}
		remove()
		time.Sleep(backoffFirst)
		if _, err := n.ensure(t, p); err != nil {
			t.Errorf("after the backoff: %v", err)
		}
	})
}

func TestStepLeavesWhatHasStarted(t *testing.T) {
	n := newNode(t, 0)
	p := podOf("p", remote, corev1.PullAlways)
	n.setUp(t, p, &pod.Observed{Containers: []pod.ContainerStatus{{Name: "app", Image: remote}}})
	if n.pulls() != 0 {
		t.Error("pulled for a container that runs")
	}
	n.setUp(t, p, &pod.Observed{Containers: []pod.ContainerStatus{{Name: "app", Image: "registry.test/app:0"}}})
	if n.pulls() != 1 {
		t.Error("a new image was not pulled ahead")
	}
	if err := n.Step().Teardown(t.Context(), &worker.Run{Pod: &pod.Pod{Pod: p}}); err != nil || len(n.pods) != 0 {
		t.Errorf("teardown: %v, remembers %v", err, n.pods)
	}
}
