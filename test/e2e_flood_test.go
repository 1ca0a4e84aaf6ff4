package test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Bounds of a flood with tokens. More requests are under way than the node has places for reviews (100).
const (
	floodRequests = 150
	// floodPause is the time between two requests of one sender.
	floodPause = 200 * time.Millisecond
	// floodStarts is how many pods are started on the quiet node, and how many beside the flood.
	floodStarts = 3
	// floodSlower is how many times longer a start may take beside the flood, which uses CPU time of the same machine.
	floodSlower = 4
	// floodWait is how long a start may take in any case. One that waits for reviews takes several times longer: 100
	// reviews need 20 s at 5 a second.
	floodWait = 5 * time.Second
)

// flood counts the answers to requests with random bearer tokens, by status code.
type flood struct {
	mu      sync.Mutex
	answers map[int]int
	busy    chan struct{} // closed at the first 429
}

// tokenFlood sends requests with random bearer tokens to the node's port. The node must refuse some of them with 429.
// Beside them it must start pods about as quickly as without, and renew its lease in time.
func tokenFlood(ts *testscript.TestScript, _ []string) {
	n := nodeOf(ts)
	renewals := n.renewals(ts)
	quiet := n.bestStart(ts, "quiet")
	quietGap := renewals()

	f := &flood{answers: map[int]int{}, busy: make(chan struct{})}
	end := f.run(ts, n)
	defer end()
	wait(ts, f.busy, "answer 429")
	renewals()
	loud := n.bestStart(ts, "loud")
	awaitRenewed(ts, nil)
	loudGap := renewals()
	end()
	ts.Logf("a pod starts in %v on the quiet node and in %v beside the flood; the longest time between renewals of the"+
		" lease is %v and %v; answers by code: %v", quiet, loud, quietGap, loudGap, f.answers)
	if limit := max(floodSlower*quiet, floodWait); loud > limit {
		ts.Fatalf("a pod starts in %v beside the flood, want at most %v; on the quiet node it starts in %v", loud,
			limit, quiet)
	}
	if limit := max(2*quietGap, floodLease/2); loudGap > limit {
		ts.Fatalf("the lease was not renewed for %v, want at most %v", loudGap, limit)
	}
	for code := range f.answers {
		if code != http.StatusUnauthorized && code != http.StatusTooManyRequests {
			ts.Fatalf("answers by code: %v", f.answers)
		}
	}
}

// floodLease is nodeLeaseDurationSeconds of the script.
const floodLease = 8 * time.Second

// bestStart starts pods, one after the other. It returns the shortest time from the creation of a pod until it is
// Ready.
func (n *node) bestStart(ts *testscript.TestScript, name string) time.Duration {
	best := patience
	for i := range floodStarts {
		began := time.Now()
		n.start(ts, fmt.Sprint(name, i))
		best = min(best, time.Since(began))
	}
	return best
}

// start creates a pod with a ConfigMap of its own, which the node must read, and waits until the pod is Ready.
func (n *node) start(ts *testscript.TestScript, name string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	meta := metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault}
	_, err := n.client.CoreV1().ConfigMaps(meta.Namespace).Create(ctx,
		&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"a": "one"}}, metav1.CreateOptions{})
	ts.Check(err)
	source := corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}
	_, err = n.client.CoreV1().Pods(meta.Namespace).Create(ctx, &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{
		NodeName: nodeName, TerminationGracePeriodSeconds: new(int64),
		Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &source}}},
		Containers: []corev1.Container{{Name: "app", Image: ts.Getenv("IMAGE"), ImagePullPolicy: corev1.PullNever,
			Args: []string{"sleep"}, VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/config"}}}},
	}}, metav1.CreateOptions{})
	ts.Check(err)
	awaitPod(ts, []string{name, "Ready"})
}

// renewals watches the node's lease. Each call of gap returns the longest time between two renewals since the call
// before.
func (n *node) renewals(ts *testscript.TestScript) (gap func() time.Duration) {
	ctx, cancel := context.WithCancel(context.Background())
	ts.Defer(cancel)
	w, err := n.client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Watch(ctx,
		metav1.ListOptions{FieldSelector: "metadata.name=" + nodeName})
	ts.Check(err)
	var mu sync.Mutex
	var longest time.Duration
	last := time.Now()
	go func() {
		for range w.ResultChan() {
			mu.Lock()
			longest, last = max(longest, time.Since(last)), time.Now()
			mu.Unlock()
		}
	}()
	return func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		was := max(longest, time.Since(last))
		longest = 0
		return was
	}
}

// run sends requests until the returned function is called.
func (f *flood) run(ts *testscript.TestScript, n *node) (end func()) {
	object, err := n.client.CoreV1().Nodes().Get(context.Background(), nodeName, metav1.GetOptions{})
	ts.Check(err)
	transport, err := rest.TransportFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: n.cluster.CA(),
		ServerName: nodeName}})
	ts.Check(err)
	port := strconv.Itoa(int(object.Status.DaemonEndpoints.KubeletEndpoint.Port))
	url := "https://" + net.JoinHostPort(n.address, port) + "/pods"
	ctx, cancel := context.WithCancel(context.Background())
	var senders sync.WaitGroup
	for i := range floodRequests {
		senders.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				f.send(ctx, transport, url, fmt.Sprintf("token-%d-%d", i, n))
				select {
				case <-ctx.Done():
				case <-time.After(floodPause):
				}
			}
		})
	}
	return func() { cancel(); senders.Wait() }
}

// send sends one request and counts its answer.
func (f *flood) send(ctx context.Context, transport http.RoundTripper, url, token string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return
	}
	request.Header.Set("Authorization", "Bearer "+token)
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, answer.Body)
	_ = answer.Body.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[answer.StatusCode]++
	if answer.StatusCode == http.StatusTooManyRequests && f.answers[answer.StatusCode] == 1 {
		close(f.busy)
	}
}
