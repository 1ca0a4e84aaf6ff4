package cgroup

import (
	"log/slog"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

// host opens the cgroup hierarchy of this machine when it is first needed.
type host struct {
	driver Driver
	root   Name // the cgroup above kubepods
	log    *slog.Logger

	mu   sync.Mutex
	tree *tree
}

func (h *host) open() (*tree, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.tree == nil {
		t, err := openTree(h.driver, h.log)
		if err != nil {
			return nil, err
		}
		h.tree = t
	}
	return h.tree, nil
}

// pod returns the name of a pod's cgroup, and the hierarchy that it is in.
func (h *host) pod(p *corev1.Pod) (Name, *tree, error) {
	name, err := podName(h.root, pod.QOS(p), p.UID)
	if err != nil {
		return nil, nil, err
	}
	t, err := h.open()
	return name, t, err
}
