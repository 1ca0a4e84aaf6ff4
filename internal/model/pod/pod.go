package pod

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
)

// Source is where a pod comes from. Its text is the value of the annotation kubernetes.io/config.source.
type Source string

// The sources, with the kubelet's names where it has them.
const (
	SourceFile  Source = "file"  // staticPodPath
	SourceURL   Source = "http"  // staticPodURL
	SourceLocal Source = "local" // berth apply and berth run, over the agent's socket
	SourceAPI   Source = "api"   // the API server of the cluster
)

// Annotations that the kubelet adds to pods of a file or URL.
const (
	AnnotationConfigHash   = "kubernetes.io/config.hash"
	AnnotationConfigSource = "kubernetes.io/config.source"
	AnnotationConfigSeen   = "kubernetes.io/config.seen"
)

// AnnotationMirror marks the API server's copy of a static pod. Its value is the static pod's AnnotationConfigHash.
const AnnotationMirror = "kubernetes.io/config.mirror"

// Pod is a desired pod. It is never changed after it was put into a table.
//
// A pod of the API server is the API's object without its managed fields, with the metadata and status that the API
// server last sent. A pod with a deletion timestamp stays desired until the API server has removed it.
type Pod struct {
	*corev1.Pod
	Source Source
	// Origin is where the manifest was read: a path, a URL, "berth apply", or "the API server".
	Origin string
	// Seen is when the source first read this UID. The pod's timeline starts then.
	Seen time.Time
	// Ephemeral says that the pod belongs to a foreground "berth run" and does not survive an agent restart.
	Ephemeral bool
}

// Key returns the pod's namespace and name.
func (p *Pod) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

// FullName returns the name for log lines and messages: namespace/name.
func FullName(p *corev1.Pod) string { return p.Namespace + "/" + p.Name }

// HostNetwork reports whether the pod uses the host's network namespace.
func HostNetwork(p *corev1.Pod) bool { return p.Spec.HostNetwork }

// Privileged reports whether a container of the pod is privileged.
func Privileged(p *corev1.Pod) bool {
	return slices.ContainsFunc(Containers(p), func(c Container) bool {
		s := c.SecurityContext
		return s != nil && s.Privileged != nil && *s.Privileged
	})
}

// Kind is the role of a container in the pod's spec.
type Kind int

// The kinds. Init containers and sidecars start first, in the order of the spec, then app containers. Ephemeral
// containers start at any time.
const (
	App Kind = iota
	Init
	Sidecar // an init container with restartPolicy Always (KEP-753)
	Ephemeral
)

func (k Kind) String() string {
	return [...]string{"container", "init container", "sidecar", "ephemeral container"}[k]
}

// Container is a container of the spec with its kind.
type Container struct {
	*corev1.Container
	Kind Kind
	// Index is the position in its list of the spec.
	Index int
	// Target is the container whose PID namespace an ephemeral container joins; empty for other kinds.
	Target string
}

// FieldPath returns the path in an event's object reference for a container, such as "spec.containers{app}".
func (c Container) FieldPath() string {
	list := map[Kind]string{App: "containers", Init: "initContainers", Sidecar: "initContainers",
		Ephemeral: "ephemeralContainers"}[c.Kind]
	return "spec." + list + "{" + c.Name + "}"
}

// many is the number of containers above which work on a pod leaves CPUs to other pods. Each change of one of these
// containers causes work that grows with their number (decision 6).
const many = 16

// longestRest limits Rest.
const longestRest = time.Second

// HasMany reports whether a pod has more than 16 app containers.
func HasMany(p *corev1.Pod) bool { return len(p.Spec.Containers) > many }

// Rest returns how long work on a pod with this number of containers rests after it took so long: as long, at most 1 s.
// The work that follows answers the changes of the meantime together. It is 0 for up to 16 containers.
func Rest(containers int, took time.Duration) time.Duration {
	if containers <= many {
		return 0
	}
	return min(took, longestRest)
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

// HostPorts returns the host ports that the pod uses. Ports of app containers and sidecars count, as for the scheduler.
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

// FindContainer returns the container with this name.
func FindContainer(p *corev1.Pod, name string) (Container, bool) {
	for _, c := range Containers(p) {
		if c.Name == name {
			return c, true
		}
	}
	return Container{}, false
}

// Differs reports whether two versions of a pod differ in a field that this node acts on: spec, labels, annotations, or
// a deletion. It ignores the status and the resource version.
func Differs(a, b *corev1.Pod) bool {
	return !equality.Semantic.DeepEqual(a.Spec, b.Spec) ||
		!maps.Equal(a.Labels, b.Labels) ||
		!maps.Equal(a.Annotations, b.Annotations) ||
		!a.DeletionTimestamp.Equal(b.DeletionTimestamp) ||
		!equality.Semantic.DeepEqual(a.DeletionGracePeriodSeconds, b.DeletionGracePeriodSeconds)
}

// Ended reports whether a phase is final: containers of such a pod never run again.
func Ended(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}
