package side

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Shape describes the pods of a measurement. Each of their containers first writes its start time to a file, the stamp.
type Shape struct {
	Containers int      // at least one
	Args       []string // the workload's action after the stamp; default sleep
	// Edit changes the pod further. The floor ignores volumes, and fields that have no effect on CRI calls.
	Edit func(*corev1.Pod)
}

// Marking is the shape of pods of one container that writes a second stamp when it gets SIGTERM, and then ends.
func Marking() Shape {
	return Shape{Args: []string{"stopped"}, Edit: func(p *corev1.Pod) {
		p.Spec.TerminationGracePeriodSeconds = new(int64(30))
		c := &p.Spec.Containers[0]
		c.Args = append(c.Args, "then", "mark", "/stamps/"+endName(p.Name))
	}}
}

// Probed is the shape of pods whose container runs a command each second, as its readiness probe.
func Probed(command []string) Shape {
	return Shape{Edit: func(p *corev1.Pod) {
		p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, TimeoutSeconds: 10,
			ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: command}}}
	}}
}

// endName is the name of the stamp of a pod's SIGTERM.
func endName(pod string) string { return "end-" + pod }

// PodName is the name of pod i of a measurement.
func PodName(prefix string, i int) string { return fmt.Sprintf("%s-%d", prefix, i) }

func containerName(i int) string { return fmt.Sprintf("c%d", i) }

// StampName is the name of the file with a container's start time.
func StampName(pod string, container int) string { return pod + "-" + containerName(container) }

// pod is a pod of this shape. stamps is the directory of the host for its stamps.
func (s Shape) pod(name, stamps string) *corev1.Pod {
	args := s.Args
	if args == nil {
		args = []string{"sleep"}
	}
	p := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(0)),
			Volumes: []corev1.Volume{{Name: "stamps", VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: stamps},
			}}},
		},
	}
	for i := range max(1, s.Containers) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
			Name: containerName(i), Image: image,
			Args:         append([]string{"stamp", "/stamps/" + StampName(name, i), "then"}, args...),
			VolumeMounts: []corev1.VolumeMount{{Name: "stamps", MountPath: "/stamps"}},
		})
	}
	if s.Edit != nil {
		s.Edit(p)
	}
	return p
}

// manifest is a pod of this shape as YAML.
func (s Shape) manifest(name, stamps string) ([]byte, error) {
	return yaml.Marshal(s.pod(name, stamps))
}

// stampNames are the names of all stamps of the pods with a prefix.
func (s Shape) stampNames(prefix string, pods int) []string {
	var names []string
	for i := range pods {
		for c := range max(1, s.Containers) {
			names = append(names, StampName(PodName(prefix, i), c))
		}
	}
	return names
}
