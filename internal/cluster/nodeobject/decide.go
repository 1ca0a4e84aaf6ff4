package nodeobject

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	cloudapi "k8s.io/cloud-provider/api"
	kubeletapis "k8s.io/kubelet/pkg/apis"

	"github.com/berth-run/berth/internal/node"
	"github.com/berth-run/berth/internal/node/condition"
)

// AttachDetach is the annotation that lets the attach-detach controller attach the node's volumes
// (enableControllerAttachDetach).
const AttachDetach = "volumes.kubernetes.io/controller-managed-attach-detach"

// RuntimeHandlers is the annotation that says, as JSON, what runs the pods of each runtime handler of the node:
// program, cgroup driver and options. The status has no fields for that. A node without configured handlers has no
// annotation.
const RuntimeHandlers = "berth.run/runtime-handlers"

// Config holds the facts that do not change while the agent runs.
type Config struct {
	// Machine has the name, the addresses, nodeInfo, and capacity and allocatable without devices. Its labels include
	// the ones of --node-labels.
	Machine node.Facts
	// AskedIPs are the addresses of --node-ip as configured, including an unspecified one.
	AskedIPs []netip.Addr
	// Taints are registerWithTaints. They are set when the object is created and never later.
	Taints     []corev1.Taint
	ProviderID string
	// ExternalCloud is --cloud-provider=external: the object is created with a taint that the cloud's controller
	// removes, and the controller's addresses take precedence.
	ExternalCloud bool
	// ControllerAttach is enableControllerAttachDetach.
	ControllerAttach bool
	// Port of the node's API, 10250 by default. Range 1-65535.
	Port int32
	// Version is the Kubernetes version whose kubelet this agent stands for, such as v1.36.3.
	Version string
	// RuntimeHandlers is the value of the annotation RuntimeHandlers, or empty for none.
	RuntimeHandlers string
	// DeclaredFeatures is the result of Declared.
	DeclaredFeatures []string
	// FreshDevices means that no earlier agent has recorded devices here. Extended resources of an existing object then
	// belong to another machine.
	FreshDevices bool
}

// Devices are the extended resources of device plugins. Resources of a plugin that has gone are listed with 0.
// Otherwise they would count as resources that another program advertises, and would stay.
type Devices struct{ Capacity, Allocatable corev1.ResourceList }

// Runtime is the container runtime's part of the object.
type Runtime struct {
	// Version is name://version, such as containerd://2.1.4.
	Version  string
	Handlers []corev1.NodeRuntimeHandler
	Features *corev1.NodeFeatures
}

// Facts are all facts that the object is made of, at one moment.
type Facts struct {
	Config     Config
	Devices    Devices
	Runtime    Runtime
	Images     []corev1.ContainerImage
	Conditions condition.Facts
	// VolumesInUse is valid only if VolumesKnown is set. Until then the object's own list stays.
	VolumesInUse []corev1.UniqueVolumeName
	VolumesKnown bool
}

// Build returns the object to register.
func Build(f Facts, now time.Time) *corev1.Node {
	c := f.Config
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: c.Machine.Name, Labels: maps.Clone(c.Machine.Labels)},
		Spec:       corev1.NodeSpec{ProviderID: c.ProviderID, Taints: slices.Clone(c.Taints)},
	}
	if c.ExternalCloud {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{
			Key: cloudapi.TaintExternalCloudProvider, Value: "true", Effect: corev1.TaintEffectNoSchedule,
		})
	}
	annotate(n, c)
	return Update(n, f, now)
}

// Reconcile returns an existing object with the changes that registering again makes: the labels that every node has,
// the annotations of the agent, the huge page sizes of this machine, and extended resources at 0 until their plugins
// are back. Its taints and other labels belong to the users.
func Reconcile(existing *corev1.Node, f Facts, now time.Time) *corev1.Node {
	n, initial := existing.DeepCopy(), Build(f, now)
	for _, key := range kubeletapis.KubeletLabels() {
		value, ok := initial.Labels[key]
		if !ok {
			continue
		}
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}
		n.Labels[key] = value
	}
	annotate(n, f.Config)
	if f.Config.FreshDevices {
		for _, list := range []corev1.ResourceList{n.Status.Capacity, n.Status.Allocatable} {
			for name := range list {
				if extended(name) {
					list[name] = *resource.NewQuantity(0, resource.DecimalSI)
				}
			}
		}
	}
	return Update(n, f, now)
}

// annotate sets the annotations that follow from the configuration, and removes them if they no longer do.
func annotate(n *corev1.Node, c Config) {
	attach := ""
	if c.ControllerAttach {
		attach = "true"
	}
	for key, value := range map[string]string{AttachDetach: attach, RuntimeHandlers: c.RuntimeHandlers} {
		if value != "" {
			metav1.SetMetaDataAnnotation(&n.ObjectMeta, key, value)
		} else {
			delete(n.Annotations, key)
		}
	}
}

// Update returns the object with the current status. It keeps the fields of other writers: conditions of other types,
// resources that another program advertised for the node, and attached volumes.
func Update(existing *corev1.Node, f Facts, now time.Time) *corev1.Node {
	n := existing.DeepCopy()
	setAddresses(n, f.Config)
	setResources(n, f)
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	info := f.Config.Machine.Info
	n.Labels[corev1.LabelOSStable], n.Labels[corev1.LabelArchStable] = info.OperatingSystem, info.Architecture
	info.KubeletVersion, info.ContainerRuntimeVersion = f.Config.Version, f.Runtime.Version
	n.Status.NodeInfo = info
	n.Status.DaemonEndpoints = corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: f.Config.Port}}
	n.Status.Images = f.Images
	n.Status.RuntimeHandlers = f.Runtime.Handlers
	n.Status.Features = f.Runtime.Features
	n.Status.DeclaredFeatures = f.Config.DeclaredFeatures
	if f.VolumesKnown {
		volumes := slices.Clone(f.VolumesInUse)
		slices.Sort(volumes)
		n.Status.VolumesInUse = slices.Compact(volumes)
	}
	for _, c := range condition.Decide(f.Conditions, existing.Status.Conditions, now) {
		setCondition(&n.Status, c)
	}
	return n
}

func setCondition(s *corev1.NodeStatus, c corev1.NodeCondition) {
	at := slices.IndexFunc(s.Conditions, func(was corev1.NodeCondition) bool { return was.Type == c.Type })
	if at < 0 {
		s.Conditions = append(s.Conditions, c)
		return
	}
	s.Conditions[at] = c
}

func setAddresses(n *corev1.Node, c Config) {
	var given []string
	for _, ip := range c.AskedIPs {
		if !ip.IsUnspecified() {
			given = append(given, ip.String())
		}
	}
	if c.ExternalCloud && len(given) > 0 {
		metav1.SetMetaDataAnnotation(&n.ObjectMeta, cloudapi.AnnotationAlphaProvidedIPAddr, strings.Join(given, ","))
	} else {
		delete(n.Annotations, cloudapi.AnnotationAlphaProvidedIPAddr)
	}
	switch {
	case c.ExternalCloud && len(n.Status.Addresses) > 0: // keep the cloud controller's
	case c.ExternalCloud && len(c.AskedIPs) == 0:
		n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: c.Machine.Name}}
	default:
		n.Status.Addresses = c.Machine.Addresses()
	}
}

// setResources keeps resources that belong neither to the machine nor to a device plugin, except huge pages of sizes
// that the machine does not have.
func setResources(n *corev1.Node, f Facts) {
	s, machine := &n.Status, f.Config.Machine
	capacity, allocatable := maps.Clone(s.Capacity), maps.Clone(s.Allocatable)
	if capacity == nil {
		capacity = corev1.ResourceList{}
	}
	if allocatable == nil {
		allocatable = corev1.ResourceList{}
	}
	isGone := func(name corev1.ResourceName, _ resource.Quantity) bool {
		_, ok := machine.Capacity[name]
		return !ok && strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
	}
	maps.DeleteFunc(capacity, isGone)
	maps.DeleteFunc(allocatable, isGone)
	maps.Copy(capacity, machine.Capacity)
	maps.Copy(capacity, f.Devices.Capacity)
	for name := range allocatable {
		if _, ok := capacity[name]; !ok && extended(name) {
			delete(allocatable, name)
		}
	}
	for name, q := range capacity { // resources that others advertise are fully allocatable
		allocatable[name] = q
	}
	maps.Copy(allocatable, machine.Allocatable)
	maps.Copy(allocatable, f.Devices.Allocatable)
	s.Capacity, s.Allocatable = capacity, allocatable
}

// extended reports whether a resource is neither Kubernetes' own nor a quota's.
func extended(name corev1.ResourceName) bool {
	domain, _, ok := strings.Cut(string(name), "/")
	return ok && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io") &&
		!strings.HasPrefix(string(name), corev1.DefaultResourceRequestsPrefix)
}

// Changed reports whether two states of the object differ in more than heartbeat times.
func Changed(was, now *corev1.Node) bool {
	a, b := was.Status.DeepCopy(), now.Status.DeepCopy()
	for _, list := range [][]corev1.NodeCondition{a.Conditions, b.Conditions} {
		for i := range list {
			list[i].LastHeartbeatTime = metav1.Time{}
		}
	}
	return !equality.Semantic.DeepEqual(a, b) ||
		!maps.Equal(was.Labels, now.Labels) || !maps.Equal(was.Annotations, now.Annotations)
}

// Patch returns the strategic merge patch of the status subresource that changes was into now: status, labels and
// annotations. It replaces the addresses as a whole, because their merge key is the type, and two addresses may have
// the same type.
func Patch(was, now *corev1.Node) ([]byte, error) {
	old, changed := was, was.DeepCopy()
	changed.Labels, changed.Annotations = now.Labels, now.Annotations
	changed.Status = now.Status
	replace := !equality.Semantic.DeepEqual(was.Status.Addresses, now.Status.Addresses)
	if replace {
		changed.Status.Addresses = was.Status.Addresses
	}
	a, err := json.Marshal(old)
	if err != nil {
		return nil, fmt.Errorf("encode node: %w", err)
	}
	b, err := json.Marshal(changed)
	if err != nil {
		return nil, fmt.Errorf("encode node: %w", err)
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(a, b, corev1.Node{})
	if err != nil {
		return nil, fmt.Errorf("compare node: %w", err)
	}
	if !replace {
		return patch, nil
	}
	var all map[string]any
	if err := json.Unmarshal(patch, &all); err != nil {
		return nil, fmt.Errorf("read patch of node: %w", err)
	}
	status, _ := all["status"].(map[string]any)
	if status == nil {
		status = map[string]any{}
	}
	list := make([]any, 0, len(now.Status.Addresses)+1)
	for _, address := range now.Status.Addresses {
		list = append(list, address)
	}
	status["addresses"] = append(list, map[string]string{"$patch": "replace"})
	all["status"] = status
	return json.Marshal(all)
}
