package selector

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestSelector(t *testing.T) {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u",
			Labels: map[string]string{"app": "web"}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	tests := []struct {
		namespace, labels, fields string
		want                      bool
		err                       string
	}{
		{want: true},
		{namespace: "shop", want: true},
		{namespace: "other"},
		{labels: "app in (web, api)", want: true},
		{labels: "!app"},
		{fields: "metadata.name=web,status.phase!=Pending", want: true},
		{fields: "metadata.uid=v"},
		{labels: "=", err: `labelSelector "=": found '=', expected: !, identifier, or 'end of string'`},
		{fields: "web", err: `fieldSelector "web": invalid selector: 'web'; can't understand 'web'`},
		{fields: "spec.image=web", err: `fieldSelector: unknown field "spec.image"`},
	}
	for _, tt := range tests {
		sel, err := New(tt.namespace, tt.labels, tt.fields, PodFields(&corev1.Pod{}))
		if text(err) != tt.err {
			t.Errorf("%+v: error %q", tt, text(err))
		}
		if err == nil && sel.Pod(p) != tt.want {
			t.Errorf("%+v: selected %v", tt, !tt.want)
		}
	}
}

// text returns the message of an error, or "".
func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
