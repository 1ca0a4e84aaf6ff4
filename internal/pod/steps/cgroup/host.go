package cgroup

import (
	"log/slog"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/steps/cgroup/hierarchy"
)

// host opens the cgroup hierarchy of this machine when it is first needed.
type host struct {
	driver hierarchy.Driver
	root   hierarchy.Name // the cgroup above kubepods
	log    *slog.Logger

	mu   sync.Mutex
	tree *hierarchy.Tree
}

func (h *host) open() (*hierarchy.Tree, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tree == nil {
		t, err := hierarchy.Open(h.driver, h.log)
		if err != nil {
			return nil, err
		}
		h.tree = t
	}
	return h.tree, nil
}

// pod returns the name of a pod's cgroup, and the hierarchy that it is in.
func (h *host) pod(p *corev1.Pod) (hierarchy.Name, *hierarchy.Tree, error) {
	name, err := podName(h.root, pod.QOS(p), p.UID)
	if err != nil {
		return nil, nil, err
	}
	t, err := h.open()
	return name, t, err
}
