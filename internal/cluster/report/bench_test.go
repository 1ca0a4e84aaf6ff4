package report

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// BenchmarkPatch measures the work for a change before it is sent.
func BenchmarkPatch(b *testing.B) {
	api := &corev1.Pod{Status: status(1, corev1.PodRunning, false)}
	ours := status(2, corev1.PodRunning, true)
	for b.Loop() {
		if patch, err := difference(api.Status, merge(api, ours, nil)); err != nil || patch == "" {
			b.Fatal(patch, err)
		}
	}
}

// BenchmarkUnchanged measures the work for an object of the watch that has the wanted status.
func BenchmarkUnchanged(b *testing.B) {
	ours := status(2, corev1.PodRunning, true)
	api := &corev1.Pod{Status: ours}
	for b.Loop() {
		if patch, err := difference(api.Status, merge(api, ours, nil)); err != nil || patch != "" {
			b.Fatal(patch, err)
		}
	}
}
