package pod

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
)

// Source says who wants a pod. Its text is the value of the annotation
// kubernetes.io/config.source.
type Source string

// The sources, in the kubelet's words where it has them.
const (
	SourceFile  Source = "file"  // staticPodPath
	SourceURL   Source = "http"  // staticPodURL
	SourceLocal Source = "local" // berth apply and berth run, over the agent's socket
	SourceAPI   Source = "api"   // the API server of the cluster
)

// Annotations that the kubelet puts on pods it takes from a file or a URL.
const (
	AnnotationConfigHash   = "kubernetes.io/config.hash"
	AnnotationConfigSource = "kubernetes.io/config.source"
	AnnotationConfigSeen   = "kubernetes.io/config.seen"
)

// AnnotationMirror marks the API server's copy of a static pod. Its value is the
// static pod's AnnotationConfigHash.
const AnnotationMirror = "kubernetes.io/config.mirror"

// Pod is one desired pod. The object is never changed after it was put in a table.
//
// One from the API is the API's object, all but its managed fields: what it has
// of metadata and status is what the API said last. It stays desired while it has
// a deletion timestamp, until the API has dropped it.
type Pod struct {
	*corev1.Pod
	Source Source
	// Origin names where the manifest was read: a path, a URL, "berth apply", or
	// "the API server".
	Origin string
	// Seen is when the source first read this UID; the start of its timeline.
	Seen time.Time
	// Ephemeral is set for a pod of a foreground "berth run": it is not kept over an agent restart.
	Ephemeral bool
}

// Key is a pod's name within its namespace.
func (p *Pod) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

// FullName is the name used in log lines and messages: namespace/name.
func FullName(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }

// HostNetwork says whether the pod uses the host's network namespace.
func HostNetwork(p *corev1.Pod) bool { return p.Spec.HostNetwork }

// Kind says which list of the pod's spec a container stands in.
type Kind int

// The kinds, in the order in which they start; ephemeral containers come at any time.
const (
	App Kind = iota
	Init
	Sidecar // an init container with restartPolicy Always (KEP-753)
	Ephemeral
)

func (k Kind) String() string {
	return [...]string{"container", "init container", "sidecar", "ephemeral container"}[k]
}

// Container is a container of the spec with the kind it has there.
type Container struct {
	*corev1.Container
	Kind Kind
	// Index is the position in its list of the spec.
	Index int
	// Target is the container whose PID namespace an ephemeral container joins; empty for the others.
	Target string
}

// FieldPath is the object reference path that Kubernetes uses for events of a
// container, e.g. "spec.containers{app}".
func (c Container) FieldPath() string {
	list := map[Kind]string{App: "containers", Init: "initContainers", Sidecar: "initContainers",
		Ephemeral: "ephemeralContainers"}[c.Kind]
	return "spec." + list + "{" + c.Name + "}"
}

// Containers lists every container of the pod: init containers and sidecars in
// order, then app containers, then ephemeral ones.
func Containers(p *corev1.Pod) []Container {
	all := make([]Container, 0, len(p.Spec.InitContainers)+len(p.Spec.Containers)+len(p.Spec.EphemeralContainers))
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		kind := Init
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			kind = Sidecar
		}
		all = append(all, Container{Container: c, Kind: kind, Index: i})
	}
	for i := range p.Spec.Containers {
		all = append(all, Container{Container: &p.Spec.Containers[i], Kind: App, Index: i})
	}
	for i := range p.Spec.EphemeralContainers {
		e := &p.Spec.EphemeralContainers[i]
		c := corev1.Container(e.EphemeralContainerCommon)
		all = append(all, Container{Container: &c, Kind: Ephemeral, Index: i, Target: e.TargetContainerName})
	}
	return all
}

// HostPorts are the ports of the host that the pod takes: of the containers that
// run as long as it does, as the scheduler counts them.
func HostPorts(p *corev1.Pod) (ports []corev1.ContainerPort) {
	for _, c := range Containers(p) {
		if c.Kind != App && c.Kind != Sidecar {
			continue
		}
		for _, port := range c.Ports {
			if port.HostPort != 0 {
				ports = append(ports, port)
			}
		}
	}
	return ports
}

// FindContainer returns the container of that name.
func FindContainer(p *corev1.Pod, name string) (Container, bool) {
	for _, c := range Containers(p) {
		if c.Name == name {
			return c, true
		}
	}
	return Container{}, false
}

// Differs says whether two versions of a pod differ in what this node acts on:
// spec, labels, annotations, or a deletion. What others write into the status, and
// each new resource version, is not among it.
func Differs(a, b *corev1.Pod) bool {
	return !equality.Semantic.DeepEqual(a.Spec, b.Spec) ||
		!maps.Equal(a.Labels, b.Labels) ||
		!maps.Equal(a.Annotations, b.Annotations) ||
		!a.DeletionTimestamp.Equal(b.DeletionTimestamp) ||
		!equality.Semantic.DeepEqual(a.DeletionGracePeriodSeconds, b.DeletionGracePeriodSeconds)
}

// Ended says whether a phase is final: containers of such a pod never run again.
func Ended(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}
