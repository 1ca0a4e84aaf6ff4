package allocation

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/resource"
	"github.com/berth-run/berth/internal/resource/state"
)

// Load reads what an earlier agent has kept, or if there was none what a kubelet
// has. The agent goes on without what the error names; what was read counts also
// then.
func (s *Allocations) Load() error {
	_, err := os.Stat(s.opts.Dir)
	if !errors.Is(err, fs.ErrNotExist) {
		lost, err := s.Ledger.Load()
		s.lose(lost)
		return err
	}
	if p := s.opts.Node.Policy; !p.CPUs && !p.Memory {
		return nil
	}
	cpus, err := kubelets(s.opts.Root, state.CPUFile, state.ParseCPUs)
	memory, err2 := kubelets(s.opts.Root, state.MemoryFile, state.ParseMemory)
	_, err3 := s.Rebuild(state.Join(cpus, memory))
	return errors.Join(err, err2, err3)
}

// kubelets reads one of the kubelet's state files; none is no error.
func kubelets(root, name string, parse func([]byte) (map[types.UID]resource.Allocation, error)) (map[types.UID]resource.Allocation, error) {
	path := filepath.Join(root, name)
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read what a kubelet has kept: %w", err)
	}
	found, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("read what a kubelet has kept: %s %w", path, err)
	}
	return found, nil
}
