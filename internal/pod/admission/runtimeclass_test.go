package admission

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berth-run/berth/internal/model/object"
)

func TestRuntimeClass(t *testing.T) {
	class := &nodev1.RuntimeClass{
		Handler: "vm", Overhead: &nodev1.Overhead{PodFixed: corev1.ResourceList{"cpu": resource.MustParse("250m")}},
		Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"vm": "yes"}},
	}
	find := func(name string) (*nodev1.RuntimeClass, error) {
		if name != "vm" {
			return nil, &object.Missing{Key: object.Key{Kind: object.RuntimeClass, Name: name}}
		}
		return class, nil
	}
	notYet := func(message string) Answer {
		return Answer{Verdict: NotYet, Reason: RuntimeClass, Message: message}
	}
	for name, c := range map[string]struct {
		spec     string
		handlers []string
		want     Answer
	}{
		"none":           {spec: "nodeName: x"},
		"not there":      {spec: "runtimeClassName: gvisor", want: notYet("waiting for RuntimeClass gvisor")},
		"there":          {spec: "runtimeClassName: vm", handlers: []string{"", "runc", "vm"}},
		"silent runtime": {spec: "runtimeClassName: vm\noverhead: {cpu: 250m}\nnodeSelector: {vm: 'yes'}"},
		"no handler": {spec: "runtimeClassName: vm", handlers: []string{"", "runc"},
			want: notYet(`waiting for a runtime with the handler "vm" of RuntimeClass vm: this one has "runc"`)},
		"default only": {spec: "runtimeClassName: vm", handlers: []string{""},
			want: notYet(
				`waiting for a runtime with the handler "vm" of RuntimeClass vm: this one has only the default one`)},
		"other overhead": {spec: "runtimeClassName: vm\noverhead: {cpu: 1}",
			want: reject(RuntimeClass, "spec.overhead is not the overhead of RuntimeClass vm: leave it out")},
		"other selector": {spec: "runtimeClassName: vm\nnodeSelector: {vm: 'no'}",
			want: reject(RuntimeClass, "spec.nodeSelector[vm] is no, and RuntimeClass vm has yes")},
	} {
		got := checkRuntimeClass(In{Pod: spec(t, c.spec), RuntimeClass: find, Config: Config{Handlers: c.handlers}})
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if got := checkRuntimeClass(In{Pod: spec(t, "runtimeClassName: vm")}); got.Verdict != NotYet {
		t.Errorf("without any classes: %v", got)
	}
}
