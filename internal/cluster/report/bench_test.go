package report

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// BenchmarkPatch is what a change costs before it is sent.
func BenchmarkPatch(b *testing.B) {
	api := &corev1.Pod{Status: status(1, corev1.PodRunning, false)}
	ours := status(2, corev1.PodRunning, true)
	for b.Loop() {
		if patch, err := difference(api.Status, merge(api, ours, nil)); err != nil || patch == "" {
			b.Fatal(patch, err)
		}
	}
}

// BenchmarkUnchanged is what an object costs that the watch brings and that is as it should be.
func BenchmarkUnchanged(b *testing.B) {
	ours := status(2, corev1.PodRunning, true)
	api := &corev1.Pod{Status: ours}
	for b.Loop() {
		if patch, err := difference(api.Status, merge(api, ours, nil)); err != nil || patch != "" {
			b.Fatal(patch, err)
		}
	}
}
