package runtime

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/containerd/containerd/v2/pkg/namespaces"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Sandboxes implements network.Sandboxes.
func (s *server) Sandboxes(ctx context.Context) ([]string, error) {
	list, err := s.cri.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, err
	}
	ids := make([]string, len(list.Items))
	for i, box := range list.Items {
		ids[i] = box.Id
	}
	return ids, nil
}

// Namespace implements network.Sandboxes. The path is in the runtime spec, which containerd shows to those who ask for
// a verbose status.
func (s *server) Namespace(ctx context.Context, sandbox string) (string, error) {
	status, err := s.cri.PodSandboxStatus(namespaces.WithNamespace(ctx, criNamespace),
		&runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandbox, Verbose: true})
	if err != nil {
		return "", err
	}
	var info struct {
		RuntimeSpec struct {
			Linux struct {
				Namespaces []struct{ Type, Path string }
			}
		}
	}
	if err := json.Unmarshal([]byte(status.Info["info"]), &info); err != nil {
		return "", fmt.Errorf("read status of sandbox %s: %w", sandbox, err)
	}
	for _, namespace := range info.RuntimeSpec.Linux.Namespaces {
		if namespace.Type == "network" {
			return namespace.Path, nil
		}
	}
	return "", nil
}
