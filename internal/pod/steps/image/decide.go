package image

import (
	"bytes"
	"maps"
	"time"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
)

// Delays between pulls of an image for one pod, doubling; a pod without a
// failure for as long as expiry starts again at the first. They are the
// kubelet's.
const (
	backoffFirst  = 10 * time.Second
	backoffMax    = 300 * time.Second
	backoffExpiry = 2 * backoffMax
)

// aheadLife is how long the result of a pull ahead stands for a pull at the
// container's start, as imagePullPolicy Always asks for.
const aheadLife = 5 * time.Minute

// action is what an image needs before a container can be created from it.
type action int

const (
	use    action = iota // it is there
	fetch                // it has to be pulled
	refuse               // it is not there and must not be pulled
	wait                 // the last pull failed not long ago
)

func (a action) String() string { return [...]string{"use", "fetch", "refuse", "wait"}[a] }

// decide is the pull policy. Always does not look at what is present. An image
// that the pod has to prove its access to counts as not present.
func decide(policy corev1.PullPolicy, present bool, b backoff, now time.Time) action {
	switch {
	case policy != corev1.PullAlways && present:
		return use
	case policy == corev1.PullNever:
		return refuse
	case now.Before(b.until()):
		return wait
	}
	return fetch
}

// backoff is the state of an image that failed for a pod. The zero value is an
// image that did not.
type backoff struct {
	delay   time.Duration
	failed  time.Time
	message string           // of that failure, reason first
	pull    *pull            // that failed
	secrets []*corev1.Secret // of the pod, at the time
}

func (b backoff) until() time.Time {
	if b.delay == 0 {
		return time.Time{}
	}
	return b.failed.Add(b.delay)
}

// after adds a failure. Several containers that waited for the same pull saw
// one failure, not several.
func (b backoff) after(p *pull, message string, secrets []*corev1.Secret, now time.Time) backoff {
	if b.pull == p {
		return b
	}
	delay := backoffFirst
	if b.delay > 0 && now.Sub(b.failed) <= backoffExpiry {
		delay = min(2*b.delay, backoffMax)
	}
	return backoff{delay: delay, failed: now, message: message, pull: p, secrets: secrets}
}

// sameSecret says whether two versions of a Secret give the same access.
func sameSecret(a, b *corev1.Secret) bool {
	return a.Name == b.Name && a.Type == b.Type && maps.EqualFunc(a.Data, b.Data, bytes.Equal)
}

// name is an image reference in its two spellings.
type name struct {
	// tagged is what the pod says plus ":latest" where it has neither tag nor
	// digest. Short names stay short: what they stand for is the runtime's to
	// say.
	tagged string
	// full tells references apart: "busybox" and "docker.io/library/busybox:latest" are one.
	full string
	// repository is full without tag and digest.
	repository string
	// latest says that the default pull policy is Always.
	latest bool
}

func parse(image string) (name, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return name{}, err
	}
	n := name{tagged: image, full: reference.TagNameOnly(named).String(), repository: named.Name()}
	if reference.IsNameOnly(named) {
		n.tagged += ":latest"
		n.latest = true
	}
	if t, ok := named.(reference.Tagged); ok {
		n.latest = t.Tag() == "latest"
	}
	return n, nil
}

// same says whether two spellings name one image.
func same(a, b string) bool {
	x, err := parse(a)
	if err != nil {
		return false
	}
	y, err := parse(b)
	return err == nil && x.full == y.full
}

// policyOf is the container's pull policy, with the API's default for one that has none.
func policyOf(p corev1.PullPolicy, n name) corev1.PullPolicy {
	switch {
	case p != "":
		return p
	case n.latest:
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

// The priorities of the system's classes (k8s.io/kubernetes/pkg/apis/scheduling).
const (
	clusterCritical = 2_000_000_000
	nodeCritical    = clusterCritical + 1000
)

// priority of a pod's pulls among those that wait.
func priority(p *corev1.Pod) int32 {
	switch {
	case p.Spec.Priority != nil:
		return *p.Spec.Priority
	case p.Spec.PriorityClassName == "system-node-critical":
		return nodeCritical
	case p.Spec.PriorityClassName == "system-cluster-critical":
		return clusterCritical
	}
	return 0
}
