package manifest

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/resource"
)

// Values that the API server sets in fields that a manifest omits.
const (
	defaultGrace        = 30      // seconds, terminationGracePeriodSeconds
	defaultMode         = 0o644   // files of secret, configMap, downwardAPI and projected volumes
	defaultTokenSeconds = 60 * 60 // serviceAccountToken
)

// Default sets the defaults of the API server (pkg/apis/core/v1 of Kubernetes 1.36) in place. It changes no field that
// is set, and calling it twice has the same result as once. It leaves the fields alone that a source decides: name,
// namespace, UID and node. It removes the status.
func Default(pod *corev1.Pod) {
	pod.Status = corev1.PodStatus{}
	spec := &pod.Spec
	set(&spec.RestartPolicy, corev1.RestartPolicyAlways)
	set(&spec.DNSPolicy, corev1.DNSClusterFirst)
	set(&spec.SchedulerName, corev1.DefaultSchedulerName)
	setPtr(&spec.TerminationGracePeriodSeconds, defaultGrace)
	setPtr(&spec.EnableServiceLinks, corev1.DefaultEnableServiceLinks)
	setPtr(&spec.SecurityContext, corev1.PodSecurityContext{})
	if spec.ServiceAccountName == "" {
		spec.ServiceAccountName = spec.DeprecatedServiceAccount
	}
	spec.DeprecatedServiceAccount = spec.ServiceAccountName

	for i := range spec.Volumes {
		defaultVolume(&spec.Volumes[i].VolumeSource)
	}
	for i := range spec.InitContainers {
		defaultContainer(&spec.InitContainers[i], spec.HostNetwork)
	}
	for i := range spec.Containers {
		defaultContainer(&spec.Containers[i], spec.HostNetwork)
	}
	for i := range spec.EphemeralContainers {
		c := corev1.Container(spec.EphemeralContainers[i].EphemeralContainerCommon)
		defaultContainer(&c, false)
		spec.EphemeralContainers[i].EphemeralContainerCommon = corev1.EphemeralContainerCommon(c)
	}
	roundUp(spec.Overhead)
	defaultPodResources(pod)
}

func defaultContainer(c *corev1.Container, hostNetwork bool) {
	set(&c.ImagePullPolicy, pullPolicy(c.Image))
	set(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	set(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		set(&c.Ports[i].Protocol, corev1.ProtocolTCP)
		if hostNetwork {
			set(&c.Ports[i].HostPort, c.Ports[i].ContainerPort)
		}
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil {
			defaultFieldRef(from.FieldRef)
			if from.FileKeyRef != nil {
				setPtr(&from.FileKeyRef.Optional, false)
			}
		}
	}
	roundUp(c.Resources.Limits)
	roundUp(c.Resources.Requests)
	requestLimits(&c.Resources)
	for _, p := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
		defaultProbe(p)
	}
	if c.Lifecycle != nil {
		for _, h := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if h != nil {
				defaultHTTPGet(h.HTTPGet)
			}
		}
	}
}

func defaultProbe(p *corev1.Probe) {
	if p == nil {
		return
	}
	set(&p.TimeoutSeconds, 1)
	set(&p.PeriodSeconds, 10)
	set(&p.SuccessThreshold, 1)
	set(&p.FailureThreshold, 3)
	defaultHTTPGet(p.HTTPGet)
	if p.GRPC != nil {
		setPtr(&p.GRPC.Service, "")
	}
}

func defaultHTTPGet(h *corev1.HTTPGetAction) {
	if h != nil {
		set(&h.Path, "/")
		set(&h.Scheme, corev1.URISchemeHTTP)
	}
}

func defaultFieldRef(f *corev1.ObjectFieldSelector) {
	if f != nil {
		set(&f.APIVersion, "v1")
	}
}

func defaultVolume(v *corev1.VolumeSource) {
	if *v == (corev1.VolumeSource{}) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	switch {
	case v.HostPath != nil:
		setPtr(&v.HostPath.Type, corev1.HostPathUnset)
	case v.Secret != nil:
		setPtr(&v.Secret.DefaultMode, defaultMode)
	case v.ConfigMap != nil:
		setPtr(&v.ConfigMap.DefaultMode, defaultMode)
	case v.DownwardAPI != nil:
		setPtr(&v.DownwardAPI.DefaultMode, defaultMode)
		defaultDownward(v.DownwardAPI.Items)
	case v.Projected != nil:
		setPtr(&v.Projected.DefaultMode, defaultMode)
		for _, s := range v.Projected.Sources {
			if s.DownwardAPI != nil {
				defaultDownward(s.DownwardAPI.Items)
			}
			if s.ServiceAccountToken != nil {
				setPtr(&s.ServiceAccountToken.ExpirationSeconds, defaultTokenSeconds)
			}
		}
	case v.Image != nil:
		set(&v.Image.PullPolicy, pullPolicy(v.Image.Reference))
	case v.ISCSI != nil:
		set(&v.ISCSI.ISCSIInterface, "default")
	case v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil:
		setPtr(&v.Ephemeral.VolumeClaimTemplate.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	}
}

func defaultDownward(items []corev1.DownwardAPIVolumeFile) {
	for i := range items {
		defaultFieldRef(items[i].FieldRef)
	}
}

// pullPolicy returns Always for an image with the tag latest, or with neither tag nor digest, which means latest. It
// returns IfNotPresent for other images.
func pullPolicy(image string) corev1.PullPolicy {
	name, _, digest := strings.Cut(image, "@")
	tag := ""
	if colon := strings.LastIndexByte(name, ':'); colon > strings.LastIndexByte(name, '/') {
		tag = name[colon+1:]
	}
	if tag == "latest" || tag == "" && !digest {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

// defaultPodResources completes pod-level resources (KEP-2837) if there are limits. A missing request becomes the sum
// of the containers' requests, or else the limit.
func defaultPodResources(pod *corev1.Pod) {
	r := pod.Spec.Resources
	if r == nil {
		return
	}
	roundUp(r.Limits)
	roundUp(r.Requests)
	if len(r.Limits) == 0 {
		return
	}
	for name, sum := range resource.AggregateContainerRequests(pod, resource.PodResourcesOptions{}) {
		overcommit := name == corev1.ResourceCPU || name == corev1.ResourceMemory
		if _, isSet := r.Requests[name]; overcommit && !isSet {
			put(&r.Requests, name, sum)
		}
	}
	requestLimits(r)
}

// requestLimits sets missing requests to the limits.
func requestLimits(r *corev1.ResourceRequirements) {
	for name, limit := range r.Limits {
		if _, isSet := r.Requests[name]; !isSet {
			put(&r.Requests, name, limit)
		}
	}
}
