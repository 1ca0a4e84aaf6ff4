package api

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/record/timeline"
)

// GroupVersion is the apiVersion of the bodies of this package.
const GroupVersion = "berth.run/v1"

// CauseNextStep is the type of the cause, in the details of a metav1.Status,
// that tells the user what to do next.
const CauseNextStep metav1.CauseType = "NextStep"

// Query parameters that Kubernetes does not have.
const (
	// ParamNamespace is the namespace of manifests that name none; those that
	// name another are then an error.
	ParamNamespace = "namespace"
	// ParamOrigin names where a manifest was read, for messages: a path or "-".
	ParamOrigin = "origin"
	// ParamKeep "false" makes pods that do not outlive the agent. Default "true".
	ParamKeep = "keep"
	// ParamLease binds the applied pods to a held lease. It implies keep=false.
	ParamLease = "lease"
	// ParamNames "true" makes an apply answer what the manifests name, and do nothing.
	ParamNames = "names"
	// ParamInstance chooses a log by the restart count of the container's instance.
	ParamInstance = "instance"
)

// TrailerError is the HTTP trailer of a stream, of a log or of files, that broke
// off: the cause.
const TrailerError = "Berth-Error"

// MaxManifest is the most bytes of manifests in one apply.
const MaxManifest = 10 << 20

// KindPod is the kind of pods in ApplyResult; the others are object.Kinds.
const KindPod = "Pod"

// Action is what an apply did to one object.
type Action string

// What an apply does to an object.
const (
	Created   Action = "created"
	Unchanged Action = "unchanged"
	// Configured says that the object has another content now; a pod under its UID or a new one.
	Configured Action = "configured"
)

// ApplyResult is the outcome for one object of an apply.
type ApplyResult struct {
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	Action    Action    `json:"action"`
	Warnings  []string  `json:"warnings,omitempty"`
}

// IsPod says whether it is the outcome for a pod.
func (r ApplyResult) IsPod() bool { return r.Kind == KindPod }

// Key is the object's name within its namespace.
func (r ApplyResult) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
}

// ApplyResultList answers an apply, in the order of the manifests.
type ApplyResultList struct {
	metav1.TypeMeta `json:",inline"`
	Items           []ApplyResult `json:"items"`
}

// Resize asks for other CPU and memory of a container.
type Resize struct {
	Container string `json:"container"`
	// Resources that are not named stay as they are.
	Resources corev1.ResourceRequirements `json:"resources"`
}

// Stream answers an exec, attach or portforward: where the runtime waits for the
// streams.
type Stream struct {
	metav1.TypeMeta `json:",inline"`
	// URL is on the loopback interface, holds a token for one use, and speaks
	// the Kubernetes remote command or port forward protocol.
	URL string `json:"url"`
}

// Copied answers files that were written into a container.
type Copied struct {
	metav1.TypeMeta `json:",inline"`
	// Skipped is what was left out, and why, a line each.
	Skipped []string `json:"skipped,omitempty"`
}

// Lease is the first line of a held lease. The lease ends with its connection,
// and the pods applied under it are then deleted.
type Lease struct {
	metav1.TypeMeta `json:",inline"`
	ID              string `json:"id"`
}

// TimelineList answers a listing of timelines, oldest first, without their spans.
type TimelineList struct {
	metav1.TypeMeta `json:",inline"`
	Items           []timeline.Timeline `json:"items"`
}

// Status is the agent's own state.
type Status struct {
	metav1.TypeMeta `json:",inline"`
	Node            string      `json:"node"`
	Root            string      `json:"root"`
	PID             int         `json:"pid"`
	StartedAt       metav1.Time `json:"startedAt"`
	Version         Version     `json:"version"`
	Runtime         Runtime     `json:"runtime"`
	// Conditions are the node's: Ready, and what holds it back.
	Conditions []corev1.NodeCondition `json:"conditions,omitempty"`
	// Problems are what users have to mend: manifests that were not taken, ...
	Problems []Problem `json:"problems,omitempty"`
}

// Runtime is the container runtime in use.
type Runtime struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Endpoint is empty for the embedded runtime.
	Endpoint string `json:"endpoint,omitempty"`
}

// Problem is something outside the agent that keeps a pod from it.
type Problem struct {
	// Origin is where pods come from: a path, a URL, or "berth apply".
	Origin string `json:"origin"`
	// Message names line and field where they are known.
	Message string      `json:"message"`
	Since   metav1.Time `json:"since"`
}

// Version says what a binary is made of.
type Version struct {
	Version    string     `json:"version"`
	Commit     string     `json:"commit,omitempty"`
	Modified   bool       `json:"modified,omitempty"`
	BuiltAt    *time.Time `json:"builtAt,omitempty"`
	Go         string     `json:"go"`
	Containerd string     `json:"containerd,omitempty"`
	Runc       string     `json:"runc,omitempty"`
	// Kubernetes is the release whose kubelet's behaviour is followed.
	Kubernetes string `json:"kubernetes"`
}

// Route describes one route of the API.
type Route struct {
	Method string   `json:"method"`
	Path   string   `json:"path"`
	Query  []string `json:"query,omitempty"`
	Doc    string   `json:"doc"`
}

// RouteList answers GET /.
type RouteList struct {
	metav1.TypeMeta `json:",inline"`
	Items           []Route `json:"items"`
}

// Type is the type meta of a kind of this package.
func Type(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: kind, APIVersion: GroupVersion}
}
