package pod

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ConditionSetAside is the type of the condition of a pod that the agent leaves alone, because the work on it panicked.
const ConditionSetAside corev1.PodConditionType = "berth.run/SetAside"

// Subject names a pod in the report of an agent that ended with a panic.
type Subject struct {
	Name string // NAMESPACE/NAME
	UID  types.UID
}

// SubjectOf returns the subject of a pod.
func SubjectOf(p *corev1.Pod) Subject { return Subject{Name: FullName(p), UID: p.UID} }

func (s Subject) String() string { return fmt.Sprintf("pod %s uid=%s", s.Name, s.UID) }

// ParseSubject is the reverse of String. ok is false for another text.
func ParseSubject(text string) (s Subject, ok bool) {
	fields := strings.Fields(text)
	if len(fields) != 3 || fields[0] != "pod" {
		return s, false
	}
	uid, ok := strings.CutPrefix(fields[2], "uid=")
	return Subject{Name: fields[1], UID: types.UID(uid)}, ok && uid != ""
}

// Ref returns the reference to the pod for an event.
func (s Subject) Ref() corev1.ObjectReference {
	namespace, name, _ := strings.Cut(s.Name, "/")
	return corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: namespace, Name: name, UID: s.UID}
}
