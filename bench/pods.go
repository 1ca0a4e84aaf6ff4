package main

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// shape describes the pods of a measurement. Each of their containers first writes its start time to a file, the stamp.
type shape struct {
	containers int      // at least one
	args       []string // the workload's action after the stamp; default sleep
	// edit changes the pod further. The floor ignores volumes, and fields that have no effect on CRI calls.
	edit func(*corev1.Pod)
}

func podName(prefix string, i int) string { return fmt.Sprintf("%s-%d", prefix, i) }

func containerName(i int) string { return fmt.Sprintf("c%d", i) }

// stampName is the name of the file with a container's start time.
func stampName(pod string, container int) string { return pod + "-" + containerName(container) }

// pod is a pod of this shape. stamps is the directory of the host for its stamps.
func (s shape) pod(name, stamps string) *corev1.Pod {
	args := s.args
	if args == nil {
		args = []string{"sleep"}
	}
	p := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64(0)),
			Volumes: []corev1.Volume{{Name: "stamps", VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: stamps},
			}}},
		},
	}
	for i := range max(1, s.containers) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{
			Name: containerName(i), Image: image,
			Args:         append([]string{"stamp", "/stamps/" + stampName(name, i), "then"}, args...),
			VolumeMounts: []corev1.VolumeMount{{Name: "stamps", MountPath: "/stamps"}},
		})
	}
	if s.edit != nil {
		s.edit(p)
	}
	return p
}

// manifest is a pod of this shape as YAML.
func (s shape) manifest(name, stamps string) ([]byte, error) {
	return yaml.Marshal(s.pod(name, stamps))
}

// stampNames are the names of all stamps of the pods with a prefix.
func (s shape) stampNames(prefix string, pods int) []string {
	var names []string
	for i := range pods {
		for c := range max(1, s.containers) {
			names = append(names, stampName(podName(prefix, i), c))
		}
	}
	return names
}
