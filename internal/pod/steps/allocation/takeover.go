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

// Load reads what an earlier agent has kept, and what a kubelet has where there was
// no agent or the kubelet came after it: that counts more then. The agent goes on
// without what the error names; what was read counts also then.
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

// kubelets reads one of the kubelet's state files; none is no error. One that an agent
// wrote is looked at only if nothing else is left of that agent.
func kubelets(root, name string, ours bool,
	parse func([]byte) (map[types.UID]resource.Allocation, error)) (map[types.UID]resource.Allocation, error) {
	path := filepath.Join(root, name)
	text, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read what a kubelet has kept: %w", err)
	case !ours && state.Ours(text):
		return nil, nil
	}
	found, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("read what a kubelet has kept: %s %w", path, err)
	}
	return found, nil
}

// Mirror keeps the files of a kubelet at what pods hold, after those of this agent,
// where anything is pinned.
func Mirror(s *Allocations) func(context.Context) error {
	write := func() {
		if err := mirror(s.opts.Root, s.opts.Node, s.All()); err != nil {
			s.opts.Log.Error("keep CPUs and memory of pods as a kubelet does; one that takes over may not start", "err",
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

// mirror writes what pods hold for a kubelet that takes the node over. It starts only
// if its files match the machine and the configuration.
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
