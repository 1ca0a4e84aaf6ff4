package printer

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/api/containers"
	"github.com/berth-run/berth/internal/cli/terminal"
	"github.com/berth-run/berth/internal/model/pod"
)

// describer writes lines with labels, indented by depth.
type describer struct {
	out strings.Builder
	// color says that labels and states have styles.
	color bool
}

// table returns a table that becomes part of the description.
func (d *describer) table(columns ...string) *Table {
	t := NewTable(&d.out, columns...)
	t.Color(d.color)
	return t
}

// width is the column of the values at depth 0.
const width = 18

func (d *describer) line(depth int, label, format string, args ...any) {
	d.styled(depth, label, "", fmt.Sprintf(format, args...))
}

// styled writes a line whose value has a style.
func (d *describer) styled(depth int, label string, style terminal.Style, value string) {
	head := fmt.Sprintf("%*s%-*s ", 2*depth, "", width-1, label+":")
	value = style.Paint(d.color, strings.Map(harmlessInLines, value))
	d.out.WriteString(strings.TrimRight(head+value, " ") + "\n")
}

// harmlessInLines replaces control characters, but not the ends of lines.
func harmlessInLines(r rune) rune {
	if r == '\n' {
		return r
	}
	return harmless(r)
}

func (d *describer) head(depth int, label string) {
	fmt.Fprintf(&d.out, "%*s%s\n", 2*depth, "", terminal.Head.Paint(d.color, label+":"))
}

// list writes a label and values, one per line. The first value is on the label's line.
func (d *describer) list(label string, values []string) {
	if len(values) == 0 {
		d.line(0, label, "<none>")
	}
	for i, v := range values {
		if i == 0 {
			d.line(0, label, "%s", v)
			continue
		}
		fmt.Fprintf(&d.out, "%-*s%s\n", width, "", strings.Map(harmlessInLines, v))
	}
}

// DescribePod writes a description of a pod for people, with its events.
func DescribePod(w io.Writer, p *corev1.Pod, events []corev1.Event, now time.Time) error {
	d := &describer{color: terminal.Of(w).Color}
	d.meta(p)
	d.containers(p)
	d.conditions(p)
	d.volumes(p)
	d.scheduling(p)
	d.events(events, now)
	_, err := io.WriteString(w, d.out.String())
	return err
}

func (d *describer) meta(p *corev1.Pod) {
	d.line(0, "Name", "%s", p.Name)
	d.line(0, "Namespace", "%s", p.Namespace)
	d.line(0, "UID", "%s", p.UID)
	if p.Spec.Priority != nil {
		d.line(0, "Priority", "%d", *p.Spec.Priority)
	}
	if p.Spec.PriorityClassName != "" {
		d.line(0, "Priority Class", "%s", p.Spec.PriorityClassName)
	}
	node := cmp.Or(p.Spec.NodeName, "<none>")
	if p.Status.HostIP != "" {
		node += "/" + p.Status.HostIP
	}
	d.line(0, "Node", "%s", node)
	if p.Status.StartTime != nil {
		d.line(0, "Start Time", "%s", p.Status.StartTime.Format(time.RFC1123Z))
	}
	d.list("Labels", pairs(p.Labels, "="))
	d.list("Annotations", pairs(p.Annotations, ": "))
	status := string(p.Status.Phase)
	if p.DeletionTimestamp != nil {
		status = "Terminating (since " + p.DeletionTimestamp.Format(time.RFC1123Z) + ")"
	}
	d.styled(0, "Status", statusStyle(word(status)), status)
	if p.DeletionTimestamp != nil && p.DeletionGracePeriodSeconds != nil {
		d.line(0, "Termination Grace Period", "%ds", *p.DeletionGracePeriodSeconds)
	}
	if p.Status.Reason != "" {
		d.line(0, "Reason", "%s", p.Status.Reason)
	}
	if p.Status.Message != "" {
		d.line(0, "Message", "%s", p.Status.Message)
	}
	d.line(0, "IP", "%s", p.Status.PodIP)
	if len(p.Status.PodIPs) > 0 {
		d.head(0, "IPs")
		for _, ip := range p.Status.PodIPs {
			d.line(1, "IP", "%s", ip.IP)
		}
	}
}

// word returns the first word of a text.
func word(text string) string {
	first, _, _ := strings.Cut(text, " ")
	return first
}

func pairs(m map[string]string, between string) []string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		all = append(all, k+between+m[k])
	}
	return all
}

func (d *describer) containers(p *corev1.Pod) {
	section := ""
	titles := map[pod.Kind]string{pod.Init: "Init Containers", pod.Sidecar: "Init Containers", pod.App: "Containers",
		pod.Ephemeral: "Ephemeral Containers"}
	for _, c := range pod.Containers(p) {
		if titles[c.Kind] != section {
			section = titles[c.Kind]
			d.head(0, section)
		}
		d.head(1, c.Name)
		d.container(c, containers.FindStatus(p, c.Name))
	}
}

func (d *describer) container(c pod.Container, st *corev1.ContainerStatus) {
	if st != nil {
		d.line(2, "Container ID", "%s", st.ContainerID)
	}
	d.line(2, "Image", "%s", c.Image)
	if st != nil {
		d.line(2, "Image ID", "%s", st.ImageID)
	}
	var ports, hostPorts []string
	for _, port := range c.Ports {
		protocol := cmp.Or(port.Protocol, corev1.ProtocolTCP)
		ports = append(ports, fmt.Sprintf("%d/%s", port.ContainerPort, protocol))
		hostPorts = append(hostPorts, fmt.Sprintf("%d/%s", port.HostPort, protocol))
	}
	d.line(2, "Ports", "%s", cmp.Or(strings.Join(ports, ", "), "<none>"))
	d.line(2, "Host Ports", "%s", cmp.Or(strings.Join(hostPorts, ", "), "<none>"))
	d.words("Command", c.Command)
	d.words("Args", c.Args)
	if c.Target != "" {
		d.line(2, "Target", "%s", c.Target)
	}
	if c.RestartPolicy != nil {
		d.line(2, "Restart Policy", "%s", *c.RestartPolicy)
	}
	if st != nil {
		d.state("State", st.State)
		if st.LastTerminationState.Terminated != nil {
			d.state("Last State", st.LastTerminationState)
		}
		d.styled(2, "Ready", conditionStyle(title(st.Ready)), title(st.Ready))
		d.line(2, "Restart Count", "%d", st.RestartCount)
	}
	d.resources("Limits", c.Resources.Limits)
	d.resources("Requests", c.Resources.Requests)
	d.probe("Liveness", c.LivenessProbe)
	d.probe("Readiness", c.ReadinessProbe)
	d.probe("Startup", c.StartupProbe)
	d.environment(c)
	d.mounts(c)
}

func title(b bool) string {
	if b {
		return "True"
	}
	return "False"
}

func (d *describer) words(label string, words []string) {
	if len(words) == 0 {
		return
	}
	d.head(2, label)
	for _, word := range words {
		for line := range strings.SplitSeq(strings.TrimRight(word, "\n"), "\n") {
			fmt.Fprintf(&d.out, "      %s\n", strings.Map(harmless, line))
		}
	}
}

func (d *describer) state(label string, s corev1.ContainerState) {
	switch {
	case s.Running != nil:
		d.styled(2, label, stateStyle(s), "Running")
		d.line(3, "Started", "%s", s.Running.StartedAt.Format(time.RFC1123Z))
	case s.Terminated != nil:
		t := s.Terminated
		d.styled(2, label, stateStyle(s), "Terminated")
		d.reason(t.Reason, t.Message)
		d.line(3, "Exit Code", "%d", t.ExitCode)
		if t.Signal != 0 {
			d.line(3, "Signal", "%d", t.Signal)
		}
		d.line(3, "Started", "%s", t.StartedAt.Format(time.RFC1123Z))
		d.line(3, "Finished", "%s", t.FinishedAt.Format(time.RFC1123Z))
	case s.Waiting != nil:
		d.styled(2, label, stateStyle(s), "Waiting")
		d.reason(s.Waiting.Reason, s.Waiting.Message)
	default:
		d.styled(2, label, stateStyle(s), "Waiting")
	}
}

func (d *describer) reason(reason, message string) {
	if reason != "" {
		d.line(3, "Reason", "%s", reason)
	}
	if message != "" {
		d.line(3, "Message", "%s", strings.ReplaceAll(strings.TrimRight(message, "\n"), "\n", " "))
	}
}

func (d *describer) resources(label string, list corev1.ResourceList) {
	if len(list) == 0 {
		return
	}
	d.head(2, label)
	for _, name := range slices.Sorted(maps.Keys(list)) {
		q := list[name]
		d.line(3, string(name), "%s", q.String())
	}
}

func (d *describer) probe(label string, p *corev1.Probe) {
	if p == nil {
		return
	}
	d.line(2, label, "%s delay=%ds timeout=%ds period=%ds #success=%d #failure=%d", handler(p.ProbeHandler),
		p.InitialDelaySeconds, p.TimeoutSeconds, p.PeriodSeconds, p.SuccessThreshold, p.FailureThreshold)
}

func handler(h corev1.ProbeHandler) string {
	switch {
	case h.Exec != nil:
		return fmt.Sprintf("exec %v", h.Exec.Command)
	case h.HTTPGet != nil:
		scheme := strings.ToLower(string(cmp.Or(h.HTTPGet.Scheme, corev1.URISchemeHTTP)))
		return fmt.Sprintf("http-get %s://%s:%s%s", scheme, h.HTTPGet.Host, h.HTTPGet.Port.String(), h.HTTPGet.Path)
	case h.TCPSocket != nil:
		return fmt.Sprintf("tcp-socket %s:%s", h.TCPSocket.Host, h.TCPSocket.Port.String())
	case h.GRPC != nil:
		service := ""
		if h.GRPC.Service != nil {
			service = " " + *h.GRPC.Service
		}
		return fmt.Sprintf("grpc :%d%s", h.GRPC.Port, service)
	}
	return "<unknown>"
}

func (d *describer) environment(c pod.Container) {
	for _, from := range c.EnvFrom {
		switch {
		case from.ConfigMapRef != nil:
			d.line(2, "Environment From", "ConfigMap %s", from.ConfigMapRef.Name)
		case from.SecretRef != nil:
			d.line(2, "Environment From", "Secret %s", from.SecretRef.Name)
		}
	}
	if len(c.Env) == 0 {
		d.line(2, "Environment", "<none>")
		return
	}
	d.head(2, "Environment")
	for _, e := range c.Env {
		d.line(3, e.Name, "%s", envValue(e))
	}
}

// envValue returns the text for a variable's value. For a secret it shows only the source.
func envValue(e corev1.EnvVar) string {
	switch from := e.ValueFrom; {
	case from == nil:
		return strings.ReplaceAll(e.Value, "\n", `\n`)
	case from.FieldRef != nil:
		return fmt.Sprintf("(%s)", from.FieldRef.FieldPath)
	case from.ResourceFieldRef != nil:
		return fmt.Sprintf("(%s)", from.ResourceFieldRef.Resource)
	case from.ConfigMapKeyRef != nil:
		return fmt.Sprintf("<key %q of config map %q>", from.ConfigMapKeyRef.Key, from.ConfigMapKeyRef.Name)
	case from.SecretKeyRef != nil:
		return fmt.Sprintf("<key %q of secret %q>", from.SecretKeyRef.Key, from.SecretKeyRef.Name)
	case from.FileKeyRef != nil:
		return fmt.Sprintf("<key %q of file %q in volume %q>", from.FileKeyRef.Key, from.FileKeyRef.Path,
			from.FileKeyRef.VolumeName)
	}
	return "<unknown>"
}

func (d *describer) mounts(c pod.Container) {
	if len(c.VolumeMounts) == 0 {
		d.line(2, "Mounts", "<none>")
		return
	}
	d.head(2, "Mounts")
	for _, m := range c.VolumeMounts {
		mode := "rw"
		if m.ReadOnly {
			mode = "ro"
		}
		if path := cmp.Or(m.SubPath, m.SubPathExpr); path != "" {
			mode += fmt.Sprintf(",path=%q", path)
		}
		fmt.Fprintf(&d.out, "      %s from %s (%s)\n", m.MountPath, m.Name, mode)
	}
}

func (d *describer) conditions(p *corev1.Pod) {
	if len(p.Status.Conditions) == 0 {
		return
	}
	d.head(0, "Conditions")
	t := d.table("  Type", "Status", "Reason", "Message")
	t.Style("Status", func(status string, _ []string) terminal.Style { return conditionStyle(status) })
	for _, c := range p.Status.Conditions {
		t.Row("  "+string(c.Type), string(c.Status), c.Reason, c.Message)
	}
	_ = t.Flush() // a strings.Builder takes everything
}

func (d *describer) volumes(p *corev1.Pod) {
	if len(p.Spec.Volumes) == 0 {
		d.line(0, "Volumes", "<none>")
		return
	}
	d.head(0, "Volumes")
	for _, v := range p.Spec.Volumes {
		d.head(1, v.Name)
		switch {
		case v.HostPath != nil:
			d.line(2, "Type", "HostPath")
			d.line(2, "Path", "%s", v.HostPath.Path)
			if v.HostPath.Type != nil {
				d.line(2, "HostPathType", "%s", *v.HostPath.Type)
			}
		case v.EmptyDir != nil:
			d.line(2, "Type", "EmptyDir")
			d.line(2, "Medium", "%s", v.EmptyDir.Medium)
			limit := "<unset>"
			if v.EmptyDir.SizeLimit != nil {
				limit = v.EmptyDir.SizeLimit.String()
			}
			d.line(2, "SizeLimit", "%s", limit)
		case v.ConfigMap != nil:
			d.line(2, "Type", "ConfigMap")
			d.line(2, "Name", "%s", v.ConfigMap.Name)
		case v.Secret != nil:
			d.line(2, "Type", "Secret")
			d.line(2, "SecretName", "%s", v.Secret.SecretName)
		default:
			d.line(2, "Type", "%s", volumeKind(v.VolumeSource))
		}
	}
}

// volumeKind returns the kind of a volume that the description shows in one line.
func volumeKind(v corev1.VolumeSource) string {
	switch {
	case v.DownwardAPI != nil:
		return "DownwardAPI"
	case v.Projected != nil:
		return "Projected"
	case v.PersistentVolumeClaim != nil:
		return "PersistentVolumeClaim " + v.PersistentVolumeClaim.ClaimName
	case v.CSI != nil:
		return "CSI " + v.CSI.Driver
	case v.Ephemeral != nil:
		return "EphemeralVolume"
	case v.Image != nil:
		return "Image " + v.Image.Reference
	case v.NFS != nil:
		return "NFS " + v.NFS.Server + ":" + v.NFS.Path
	}
	return "other (see -o yaml)"
}

func (d *describer) scheduling(p *corev1.Pod) {
	d.line(0, "QoS Class", "%s", cmp.Or(string(p.Status.QOSClass), "<unknown>"))
	d.list("Node-Selectors", pairs(p.Spec.NodeSelector, "="))
	var tolerations []string
	for _, t := range p.Spec.Tolerations {
		tolerations = append(tolerations, toleration(t))
	}
	d.list("Tolerations", tolerations)
}

func toleration(t corev1.Toleration) string {
	s := t.Key
	if t.Value != "" {
		s += "=" + t.Value
	}
	if t.Effect != "" {
		s += ":" + string(t.Effect)
	}
	if t.Operator == corev1.TolerationOpExists {
		s = strings.TrimSpace(s + " op=Exists")
	}
	if t.TolerationSeconds != nil {
		s += fmt.Sprintf(" for %ds", *t.TolerationSeconds)
	}
	return s
}

func (d *describer) events(events []corev1.Event, now time.Time) {
	if len(events) == 0 {
		d.line(0, "Events", "<none>")
		return
	}
	d.head(0, "Events")
	t := d.table("  Type", "Reason", "Age", "Container", "Message")
	t.Style("  Type", func(kind string, _ []string) terminal.Style { return eventStyle(strings.TrimSpace(kind)) })
	for i := range events {
		e := &events[i]
		t.Row("  "+e.Type, e.Reason, seen(e, now), FieldContainer(e.InvolvedObject.FieldPath), e.Message)
	}
	_ = t.Flush() // a strings.Builder takes everything
}

// FieldContainer returns the container name in a field path such as spec.containers{app}, or "".
func FieldContainer(path string) string {
	_, rest, ok := strings.Cut(path, "{")
	if !ok {
		return ""
	}
	return strings.TrimSuffix(rest, "}")
}
