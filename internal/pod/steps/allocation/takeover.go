package allocation

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/node/resource/cpu"
	"github.com/berth-run/berth/internal/node/resource/state"
)

// Load reads the ledger of the previous agent. It also reads a kubelet's files if no agent ran here before or a kubelet
// wrote the files later; these then count more. Everything that could be read is in use even if Load returns an error.
func (s *Allocations) Load() error {
	_, err := os.Stat(s.opts.Dir)
	none := errors.Is(err, fs.ErrNotExist)
	lost, err := s.Ledger.Load()
	s.lose(lost)
	if p := s.opts.Node.Policy; !p.CPUs && !p.Memory {
		return err
	}
	cpus, err2 := kubelets(s.opts.Root, state.CPUFile, none, state.ParseCPUs)
	memory, err3 := kubelets(s.opts.Root, state.MemoryFile, none, state.ParseMemory)
	lost, err4 := s.TakeOver(state.Join(cpus, memory))
	s.lose(lost)
	return errors.Join(err, err2, err3, err4)
}

// kubelets reads one of the kubelet's state files. A missing file is no error. A file that an agent wrote is used only
// if the ledger of that agent is lost.
func kubelets(root, name string, ours bool,
	parse func([]byte) (map[types.UID]resource.Allocation, error)) (map[types.UID]resource.Allocation, error) {
	path := filepath.Join(root, name)
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read the kubelet's state: %w", err)
	case !ours && state.Ours(text):
		return nil, nil
	}
	found, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("read the kubelet's state: %s %w", path, err)
	}
	return found, nil
}

// Mirror returns a loop that writes the kubelet's state files after each change of the ledger. It does nothing if
// neither CPUs nor memory are pinned.
func Mirror(s *Allocations) func(context.Context) error {
	write := func() {
		if err := mirror(s.opts.Root, s.opts.Node, s.All()); err != nil {
			s.opts.Log.Error(
				"write the kubelet's state of CPUs and memory failed; a kubelet that takes over may not start", "err",
				err)
		}
	}
	return func(ctx context.Context) error {
		if p := s.opts.Node.Policy; !p.CPUs && !p.Memory {
			return nil
		}
		write()
		for {
			select {
			case <-s.changed:
				write()
			case <-ctx.Done():
				select {
				case <-s.changed:
					write()
				default:
				}
				return nil
			}
		}
	}
}

// mirror writes the allocations for a kubelet that takes over the node. A kubelet starts only if its files match the
// machine and the configuration.
func mirror(root string, node resource.Node, held resource.Held) error {
	var errs []error
	keep := func(name string, text []byte, err error) {
		if err == nil {
			err = checkpoint.Replace(filepath.Join(root, name), text)
		}
		errs = append(errs, err)
	}
	if p := node.Policy; p.CPUs {
		own := cpuset.New()
		for _, a := range held {
			for _, g := range a.Containers {
				own = own.Union(g.CPUs)
			}
		}
		shared := cpu.Pool{Machine: node.Machine, Reserved: p.ReservedCPUs, Held: own, Options: p.CPU}.Shared()
		text, err := state.FormatCPUs(shared, held)
		keep(state.CPUFile, text, err)
	}
	if node.Policy.Memory {
		text, err := state.FormatMemory(node.Machine, node.Policy.ReservedMemory, held)
		keep(state.MemoryFile, text, err)
	}
	return errors.Join(errs...)
}
