package image

import (
	"bytes"
	"maps"
	"time"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
)

// Delays between pulls of an image for one pod. They are the kubelet's. The delay doubles with each failure. After
// backoffExpiry without a failure it starts again at the first.
const (
	backoffFirst  = 10 * time.Second
	backoffMax    = 300 * time.Second
	backoffExpiry = 2 * backoffMax
)

// aheadLife is how long the result of a pull ahead still counts as a pull at the container's start, which
// imagePullPolicy Always requires.
const aheadLife = 5 * time.Minute

// action is the work that an image needs before a container can be created from it.
type action int

const (
	use    action = iota // the image is present
	fetch                // pull it
	refuse               // it is missing, and the policy forbids a pull
	wait                 // the last pull failed, and its delay has not passed
)

func (a action) String() string { return [...]string{"use", "fetch", "refuse", "wait"}[a] }

// decide applies the pull policy. Always ignores whether the image is present. An image that the pod has not yet proved
// its access to counts as not present.
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

// backoff is the state of an image whose pull failed for a pod. The zero value means no failure.
type backoff struct {
	delay   time.Duration
	failed  time.Time
	message string           // of the failure, reason first
	pull    *pull            // the failed pull
	secrets []*corev1.Secret // the pod's pull Secrets at that time
}

func (b backoff) until() time.Time {
	if b.delay == 0 {
		return time.Time{}
	}
	return b.failed.Add(b.delay)
}

// after adds a failure. Several containers that waited for the same pull count as one failure.
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

// sameSecret reports whether two versions of a Secret give the same access.
func sameSecret(a, b *corev1.Secret) bool {
	return a.Name == b.Name && a.Type == b.Type && maps.EqualFunc(a.Data, b.Data, bytes.Equal)
}

// name is an image reference in two spellings.
type name struct {
	// tagged is the pod's spelling, plus ":latest" if it has neither tag nor digest. A short name stays short, because
	// the runtime decides which registry it belongs to.
	tagged string
	// full identifies the reference: it is equal for "busybox" and "docker.io/library/busybox:latest".
	full string
	// repository is full without tag and digest.
	repository string
	// latest is set if the default pull policy is Always.
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

// same reports whether two spellings name the same image.
func same(a, b string) bool {
	x, err := parse(a)
	if err != nil {
		return false
	}
	y, err := parse(b)
	return err == nil && x.full == y.full
}

// policyOf returns the container's pull policy, or the API's default if it has none.
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

// priority returns the priority of a pod's pulls among those that wait.
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
