package manifest

import (
	"fmt"
	"math"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-run/berth/internal/model/pod"
)

// maxRestartRules is the API server's limit for restartPolicyRules (KEP-5307).
const maxRestartRules = 20

// checkContainers checks each container of the three lists, and that names and host ports are unique.
func checkContainers(c *check, spec *field.Path) {
	if len(c.pod.Spec.Containers) == 0 {
		c.add(field.Required(spec.Child("containers"), "a pod has at least one"))
	}
	names := map[string]bool{}
	hostPorts := map[string]bool{}
	for _, k := range pod.Containers(c.pod) {
		at := spec.Child(list(k.Kind)).Index(k.Index)
		c.text(at.Child("name"), k.Name, validation.IsDNS1123Label)
		if names[k.Name] && k.Name != "" {
			c.add(field.Duplicate(at.Child("name"), k.Name))
		}
		names[k.Name] = true
		checkContainer(c, k, at)
		if k.Kind == pod.App || k.Kind == pod.Sidecar {
			checkHostPorts(c, k.Ports, at.Child("ports"), hostPorts)
		}
	}
}

func list(k pod.Kind) string {
	switch k {
	case pod.Init, pod.Sidecar:
		return "initContainers"
	case pod.Ephemeral:
		return "ephemeralContainers"
	default:
		return "containers"
	}
}

func checkContainer(c *check, k pod.Container, at *field.Path) {
	switch {
	case k.Image == "":
		c.add(field.Required(at.Child("image"), ""))
	case strings.TrimSpace(k.Image) != k.Image:
		c.invalid(at.Child("image"), k.Image, "must not have leading or trailing whitespace")
	}
	oneOf(c, at.Child("imagePullPolicy"), k.ImagePullPolicy, corev1.PullAlways, corev1.PullIfNotPresent,
		corev1.PullNever)
	oneOf(c, at.Child("terminationMessagePolicy"), k.TerminationMessagePolicy, corev1.TerminationMessageReadFile,
		corev1.TerminationMessageFallbackToLogsOnError)
	checkPorts(c, k.Ports, at.Child("ports"))
	checkEnv(c, k.Container, at)
	checkMounts(c, k, at)
	checkResources(c, &k.Resources, at.Child("resources"))
	checkContainerSecurity(c, k.SecurityContext, at.Child("securityContext"))
	checkRestartRules(c, k, at)
	checkResizePolicy(c, k.ResizePolicy, at.Child("resizePolicy"))
	switch k.Kind {
	case pod.Init:
		forbidHooks(c, k.Container, at, "is not allowed for an init container that does not have restartPolicy Always")
	case pod.Ephemeral:
		checkEphemeral(c, k, at)
	default:
		checkHooks(c, k.Container, at)
	}
}

// forbidHooks refuses probes and lifecycle handlers.
func forbidHooks(c *check, k *corev1.Container, at *field.Path, why string) {
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"lifecycle", k.Lifecycle != nil},
		{"livenessProbe", k.LivenessProbe != nil},
		{"readinessProbe", k.ReadinessProbe != nil},
		{"startupProbe", k.StartupProbe != nil},
	} {
		if f.set {
			c.add(field.Forbidden(at.Child(f.name), why))
		}
	}
}

func checkEphemeral(c *check, k pod.Container, at *field.Path) {
	const why = "is not allowed for an ephemeral container"
	forbidHooks(c, k.Container, at, why)
	if len(k.Ports) > 0 {
		c.add(field.Forbidden(at.Child("ports"), why))
	}
	if len(k.Resources.Limits)+len(k.Resources.Requests)+len(k.Resources.Claims) > 0 {
		c.add(field.Forbidden(at.Child("resources"), why))
	}
	if len(k.ResizePolicy) > 0 {
		c.add(field.Forbidden(at.Child("resizePolicy"), why))
	}
	if k.RestartPolicy != nil || len(k.RestartPolicyRules) > 0 {
		c.add(field.Forbidden(at.Child("restartPolicy"), why))
	}
	for i, m := range k.VolumeMounts {
		if m.SubPath != "" || m.SubPathExpr != "" {
			c.add(field.Forbidden(at.Child("volumeMounts").Index(i).Child("subPath"), why))
		}
	}
	if k.Target == "" {
		return
	}
	if target, ok := pod.FindContainer(c.pod, k.Target); !ok || target.Kind == pod.Ephemeral {
		c.add(field.NotFound(at.Child("targetContainerName"), k.Target))
	}
}

func checkPorts(c *check, ports []corev1.ContainerPort, at *field.Path) {
	names := map[string]bool{}
	for i, p := range ports {
		at := at.Index(i)
		if p.Name != "" {
			c.rules(at.Child("name"), p.Name, validation.IsValidPortName(p.Name))
			if names[p.Name] {
				c.add(field.Duplicate(at.Child("name"), p.Name))
			}
			names[p.Name] = true
		}
		if p.ContainerPort == 0 {
			c.add(field.Required(at.Child("containerPort"), ""))
		} else {
			c.rules(at.Child("containerPort"), p.ContainerPort, validation.IsValidPortNum(int(p.ContainerPort)))
		}
		if p.HostPort != 0 {
			c.rules(at.Child("hostPort"), p.HostPort, validation.IsValidPortNum(int(p.HostPort)))
		}
		if c.pod.Spec.HostNetwork && p.HostPort != p.ContainerPort {
			c.invalid(at.Child("hostPort"), p.HostPort, "must be containerPort (%d), or left out, on the host network",
				p.ContainerPort)
		}
		oneOf(c, at.Child("protocol"), p.Protocol, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
		if p.HostIP != "" {
			c.add(validation.IsValidIP(at.Child("hostIP"), p.HostIP)...)
		}
	}
}

// checkHostPorts refuses a host port that another container of the pod uses.
func checkHostPorts(c *check, ports []corev1.ContainerPort, at *field.Path, used map[string]bool) {
	for i, p := range ports {
		if p.HostPort == 0 {
			continue
		}
		key := fmt.Sprintf("%s/%s/%d", p.Protocol, p.HostIP, p.HostPort)
		if used[key] {
			c.add(field.Duplicate(at.Index(i).Child("hostPort"), key))
		}
		used[key] = true
	}
}

// checkMounts checks volumeMounts and volumeDevices against the pod's volumes.
func checkMounts(c *check, k pod.Container, at *field.Path) {
	volumes := map[string]corev1.VolumeSource{}
	for _, v := range c.pod.Spec.Volumes {
		volumes[v.Name] = v.VolumeSource
	}
	paths := map[string]bool{}
	for i, m := range k.VolumeMounts {
		at := at.Child("volumeMounts").Index(i)
		if m.Name == "" {
			c.add(field.Required(at.Child("name"), ""))
		} else if _, ok := volumes[m.Name]; !ok {
			c.add(field.NotFound(at.Child("name"), m.Name))
		}
		checkMount(c, m, k.SecurityContext, at)
		if paths[m.MountPath] && m.MountPath != "" {
			c.invalid(at.Child("mountPath"), m.MountPath, "must be unique")
		}
		paths[m.MountPath] = true
	}
	for i, d := range k.VolumeDevices {
		at := at.Child("volumeDevices").Index(i)
		if v, ok := volumes[d.Name]; !ok {
			c.add(field.NotFound(at.Child("name"), d.Name))
		} else if v.PersistentVolumeClaim == nil && v.Ephemeral == nil {
			c.invalid(at.Child("name"), d.Name, "must be a persistentVolumeClaim or an ephemeral volume")
		}
		if d.DevicePath == "" {
			c.add(field.Required(at.Child("devicePath"), ""))
		} else if paths[d.DevicePath] {
			c.invalid(at.Child("devicePath"), d.DevicePath, "must be unique")
		}
		paths[d.DevicePath] = true
	}
}

func checkMount(c *check, m corev1.VolumeMount, security *corev1.SecurityContext, at *field.Path) {
	if m.MountPath == "" {
		c.add(field.Required(at.Child("mountPath"), ""))
	} else if strings.Contains(m.MountPath, ":") {
		c.invalid(at.Child("mountPath"), m.MountPath, "must not contain ':'")
	}
	c.relative(at.Child("subPath"), m.SubPath)
	c.relative(at.Child("subPathExpr"), m.SubPathExpr)
	if m.SubPath != "" && m.SubPathExpr != "" {
		c.invalid(at.Child("subPathExpr"), m.SubPathExpr, "cannot be set together with subPath")
	}
	propagation := corev1.MountPropagationNone
	if m.MountPropagation != nil {
		propagation = *m.MountPropagation
		oneOf(c, at.Child("mountPropagation"), propagation, corev1.MountPropagationNone,
			corev1.MountPropagationHostToContainer, corev1.MountPropagationBidirectional)
		if propagation == corev1.MountPropagationBidirectional &&
			(security == nil || security.Privileged == nil || !*security.Privileged) {
			c.add(field.Forbidden(at.Child("mountPropagation"), "Bidirectional needs a privileged container"))
		}
	}
	if m.RecursiveReadOnly == nil {
		return
	}
	recursive := at.Child("recursiveReadOnly")
	oneOf(c, recursive, *m.RecursiveReadOnly, corev1.RecursiveReadOnlyDisabled, corev1.RecursiveReadOnlyIfPossible,
		corev1.RecursiveReadOnlyEnabled)
	if *m.RecursiveReadOnly != corev1.RecursiveReadOnlyDisabled &&
		(!m.ReadOnly || propagation != corev1.MountPropagationNone) {
		c.add(field.Forbidden(recursive, "needs readOnly: true and no mountPropagation"))
	}
}

// relative requires a relative path without "..".
func (c *check) relative(at *field.Path, value string) {
	if value == "" {
		return
	}
	if path.IsAbs(value) {
		c.invalid(at, value, "must be a relative path")
	}
	c.noBacksteps(at, value)
}

func (c *check) noBacksteps(at *field.Path, value string) {
	for part := range strings.SplitSeq(value, "/") {
		if part == ".." {
			c.invalid(at, value, "must not contain '..'")
			return
		}
	}
}

// checkRestartRules checks the container's own restart policy (KEP-753, KEP-5307).
func checkRestartRules(c *check, k pod.Container, at *field.Path) {
	if k.Kind == pod.Ephemeral {
		return
	}
	if k.RestartPolicy != nil {
		oneOf(c, at.Child("restartPolicy"), *k.RestartPolicy, corev1.ContainerRestartPolicyAlways,
			corev1.ContainerRestartPolicyOnFailure, corev1.ContainerRestartPolicyNever)
	}
	at = at.Child("restartPolicyRules")
	switch {
	case len(k.RestartPolicyRules) == 0:
		return
	case k.RestartPolicy == nil:
		c.add(field.Required(at, "restartPolicy of the container must be set"))
	case k.Kind == pod.Sidecar:
		c.add(field.Forbidden(at, "is not allowed for an init container with restartPolicy Always"))
	}
	if len(k.RestartPolicyRules) > maxRestartRules {
		c.add(field.TooMany(at, len(k.RestartPolicyRules), maxRestartRules))
	}
	for i, rule := range k.RestartPolicyRules {
		at := at.Index(i)
		oneOf(c, at.Child("action"), rule.Action, corev1.ContainerRestartRuleActionRestart,
			corev1.ContainerRestartRuleActionRestartAllContainers)
		if rule.ExitCodes == nil {
			c.add(field.Required(at.Child("exitCodes"), ""))
			continue
		}
		oneOf(c, at.Child("exitCodes", "operator"), rule.ExitCodes.Operator, corev1.ContainerRestartRuleOnExitCodesOpIn,
			corev1.ContainerRestartRuleOnExitCodesOpNotIn)
		for j, code := range rule.ExitCodes.Values {
			c.within(at.Child("exitCodes", "values").Index(j), int64(code), 0, 255)
		}
	}
}

func checkResizePolicy(c *check, policies []corev1.ContainerResizePolicy, at *field.Path) {
	for i, p := range policies {
		oneOf(c, at.Index(i).Child("resourceName"), p.ResourceName, corev1.ResourceCPU, corev1.ResourceMemory)
		oneOf(c, at.Index(i).Child("restartPolicy"), p.RestartPolicy, corev1.NotRequired, corev1.RestartContainer)
	}
}

// checkHooks checks probes and lifecycle handlers of a container that may have them.
func checkHooks(c *check, k *corev1.Container, at *field.Path) {
	if k.Lifecycle != nil {
		checkHandler(c, k.Lifecycle.PostStart, at.Child("lifecycle", "postStart"))
		checkHandler(c, k.Lifecycle.PreStop, at.Child("lifecycle", "preStop"))
	}
	checkProbe(c, k.StartupProbe, at.Child("startupProbe"))
	checkProbe(c, k.LivenessProbe, at.Child("livenessProbe"))
	checkProbe(c, k.ReadinessProbe, at.Child("readinessProbe"))
	for _, p := range []struct {
		name  string
		probe *corev1.Probe
	}{{"startupProbe", k.StartupProbe}, {"livenessProbe", k.LivenessProbe}} {
		if p.probe != nil && p.probe.SuccessThreshold != 1 {
			c.invalid(at.Child(p.name, "successThreshold"), p.probe.SuccessThreshold, "must be 1")
		}
	}
	if p := k.ReadinessProbe; p != nil && p.TerminationGracePeriodSeconds != nil {
		c.invalid(at.Child("readinessProbe", "terminationGracePeriodSeconds"), *p.TerminationGracePeriodSeconds,
			"must not be set for a readiness probe, which kills nothing")
	}
}

func checkProbe(c *check, p *corev1.Probe, at *field.Path) {
	if p == nil {
		return
	}
	c.only(at, &p.ProbeHandler)
	for _, f := range []struct {
		name  string
		value int32
	}{
		{"initialDelaySeconds", p.InitialDelaySeconds},
		{"timeoutSeconds", p.TimeoutSeconds},
		{"periodSeconds", p.PeriodSeconds},
		{"successThreshold", p.SuccessThreshold},
		{"failureThreshold", p.FailureThreshold},
	} {
		c.within(at.Child(f.name), int64(f.value), 0, math.MaxInt64)
	}
	if p.TerminationGracePeriodSeconds != nil {
		c.within(at.Child("terminationGracePeriodSeconds"), *p.TerminationGracePeriodSeconds, 1, math.MaxInt64)
	}
	checkAction(c, p.Exec, p.HTTPGet, p.TCPSocket, at)
	if p.GRPC != nil {
		c.rules(at.Child("grpc", "port"), p.GRPC.Port, validation.IsValidPortNum(int(p.GRPC.Port)))
	}
}

func checkHandler(c *check, h *corev1.LifecycleHandler, at *field.Path) {
	if h == nil {
		return
	}
	c.only(at, h)
	checkAction(c, h.Exec, h.HTTPGet, h.TCPSocket, at)
	if h.Sleep != nil {
		grace := int64(math.MaxInt32)
		if g := c.pod.Spec.TerminationGracePeriodSeconds; g != nil {
			grace = *g
		}
		c.within(at.Child("sleep", "seconds"), h.Sleep.Seconds, 0, max(grace, 0))
	}
}

// checkAction checks the kinds of handler that probes and lifecycle share.
func checkAction(c *check, exec *corev1.ExecAction, get *corev1.HTTPGetAction, tcp *corev1.TCPSocketAction,
	at *field.Path) {
	if exec != nil && len(exec.Command) == 0 {
		c.add(field.Required(at.Child("exec", "command"), ""))
	}
	if get != nil {
		at := at.Child("httpGet")
		c.port(at.Child("port"), get.Port)
		oneOf(c, at.Child("scheme"), get.Scheme, corev1.URISchemeHTTP, corev1.URISchemeHTTPS)
		for i, h := range get.HTTPHeaders {
			c.text(at.Child("httpHeaders").Index(i).Child("name"), h.Name, validation.IsHTTPHeaderName)
		}
	}
	if tcp != nil {
		c.port(at.Child("tcpSocket", "port"), tcp.Port)
	}
}
