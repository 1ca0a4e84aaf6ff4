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

// CauseNextStep is the type of a cause in metav1.StatusDetails. Its message is the user's next step.
const CauseNextStep metav1.CauseType = "NextStep"

// Query parameters that Kubernetes does not have.
const (
	// ParamNamespace is the namespace of manifests that set none. A manifest with another namespace is then
	// an error.
	ParamNamespace = "namespace"
	// ParamOrigin names the source of the manifests in messages: a path, or "-" for standard input.
	ParamOrigin = "origin"
	// ParamKeep "false" creates pods that end with the agent. Default: "true".
	ParamKeep = "keep"
	// ParamLease binds the applied pods to a held lease. It implies keep=false.
	ParamLease = "lease"
	// ParamNames "true" makes an apply return the objects that the manifests name. It neither validates nor
	// applies them.
	ParamNames = "names"
	// ParamInstance chooses a log by the restart count of the container instance that wrote it.
	ParamInstance = "instance"
)

// TrailerError is the HTTP trailer that holds the cause when a stream of a log or of files breaks off.
const TrailerError = "Berth-Error"

// MaxManifest is the size limit of the manifests in one apply, in bytes.
const MaxManifest = 10 << 20

// KindPod is the kind of a pod in ApplyResult. Other objects have a kind of object.Kinds.
const KindPod = "Pod"

// Action is the effect of an apply on one object.
type Action string

// The actions of an apply.
const (
	Created   Action = "created"
	Unchanged Action = "unchanged"
	// Configured says that the object's content changed. A pod keeps its UID or is replaced by a new pod.
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

// IsPod reports whether r is the outcome for a pod.
func (r ApplyResult) IsPod() bool { return r.Kind == KindPod }

// Key returns the object's namespace and name.
func (r ApplyResult) Key() types.NamespacedName {
	return types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
}

// ApplyResultList is the answer to an apply, in the order of the manifests.
type ApplyResultList struct {
	metav1.TypeMeta `json:",inline"`
	Items           []ApplyResult `json:"items"`
}

// Resize is a request to change the CPU and memory of a container.
type Resize struct {
	Container string `json:"container"`
	// Resources are the new requests and limits. A resource that is left out keeps its value.
	Resources corev1.ResourceRequirements `json:"resources"`
}

// Stream is the answer to an exec, attach or portforward request: the URL of the runtime's streaming
// server.
type Stream struct {
	metav1.TypeMeta `json:",inline"`
	// URL is on the loopback interface and holds a token for one use. The server behind it speaks the
	// Kubernetes remote command or port forward protocol.
	URL string `json:"url"`
}

// Copied is the answer after files were written into a container.
type Copied struct {
	metav1.TypeMeta `json:",inline"`
	// Skipped lists the files that were left out, one line each, with the reason.
	Skipped []string `json:"skipped,omitempty"`
}

// Lease is the first line of the answer to a lease request. The lease ends when the connection closes, and
// the agent then deletes the pods that were applied under it.
type Lease struct {
	metav1.TypeMeta `json:",inline"`
	ID              string `json:"id"`
}

// TimelineList is the list of timelines, oldest first. Only the parameter last adds their spans.
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
	// Conditions are the node's conditions: Ready, and those that explain why it is not.
	Conditions []corev1.NodeCondition `json:"conditions,omitempty"`
	// Problems lists faults that users have to correct, such as rejected manifests.
	Problems []Problem `json:"problems,omitempty"`
}

// Runtime is the container runtime in use.
type Runtime struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	// Endpoint is empty for the embedded runtime.
	Endpoint string `json:"endpoint,omitempty"`
	// Handlers are the runtime handlers that a RuntimeClass can name. It is empty if the runtime lists none.
	Handlers []corev1.NodeRuntimeHandler `json:"handlers,omitempty"`
	// HandlerPrograms are the programs of the runtime handlers. It is empty for an external runtime, which does not
	// report them.
	HandlerPrograms []HandlerProgram `json:"handlerPrograms,omitempty"`
	// CgroupDriver is cgroupfs or systemd: the driver of the agent and of all OCI runtimes.
	CgroupDriver string `json:"cgroupDriver,omitempty"`
}

// HandlerProgram is the program that runs the pods of a runtime handler of the embedded runtime.
type HandlerProgram struct {
	Name string `json:"name"`
	// Program is an OCI runtime, or a shim.
	Program string `json:"program"`
	// CgroupDriver is cgroupfs or systemd. It is empty for a shim, which has a configuration of its own.
	CgroupDriver string `json:"cgroupDriver,omitempty"`
	// Options are the options that the configuration sets, as NAME=VALUE.
	Options []string `json:"options,omitempty"`
}

// Problem is a fault outside the agent that keeps it from running a pod.
type Problem struct {
	// Origin is the source of the pods: a path, a URL, or "berth apply".
	Origin string `json:"origin"`
	// Message describes the fault, with line and field if they are known.
	Message string      `json:"message"`
	Since   metav1.Time `json:"since"`
}

// Version describes a binary: its release, its build, and the releases of its main components.
type Version struct {
	Version    string     `json:"version"`
	Commit     string     `json:"commit,omitempty"`
	Modified   bool       `json:"modified,omitempty"`
	BuiltAt    *time.Time `json:"builtAt,omitempty"`
	Go         string     `json:"go"`
	Containerd string     `json:"containerd,omitempty"`
	Runc       string     `json:"runc,omitempty"`
	// Kubernetes is the release whose kubelet Berth behaves like.
	Kubernetes string `json:"kubernetes"`
}

// Route describes one route of the API.
type Route struct {
	Method string   `json:"method"`
	Path   string   `json:"path"`
	Query  []string `json:"query,omitempty"`
	Doc    string   `json:"doc"`
}

// RouteList is the answer to GET /.
type RouteList struct {
	metav1.TypeMeta `json:",inline"`
	Items           []Route `json:"items"`
}

// Type returns the TypeMeta for a kind of this package.
func Type(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: kind, APIVersion: GroupVersion}
}
