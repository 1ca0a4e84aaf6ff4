package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
)

// Checkpoints is the root directory of cri-dockerd; "" if there is none. It has a file for each sandbox that
// cri-dockerd has made, named by the sandbox's ID. The shim makes none: a sandbox's labels and libcni's cache say the
// same. It removes the files of removed sandboxes, so that a cri-dockerd that comes back does not show them.
type Checkpoints string

// sandboxID is the form of an ID of Docker.
var sandboxID = regexp.MustCompile(`^[0-9a-f]{64}$`)

func (c Checkpoints) path(id string) string { return filepath.Join(string(c), "sandbox", id) }

// ids lists the sandboxes that have a file.
func (c Checkpoints) ids() (all []string, err error) {
	if c == "" {
		return nil, nil
	}
	entries, err := os.ReadDir(c.path(""))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if sandboxID.MatchString(e.Name()) {
			all = append(all, e.Name())
		}
	}
	return all, err
}

// remove removes the file of a sandbox, if it has one.
func (c Checkpoints) remove(id string) error {
	if c == "" || !sandboxID.MatchString(id) {
		return nil
	}
	if err := os.Remove(c.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the checkpoint of sandbox %s: %w", id, err)
	}
	return nil
}

// sweepCheckpoints detaches sandboxes of cri-dockerd from their networks if the Engine has lost them. Sandboxes whose
// network namespace exists are left alone: they may belong to another Engine of the machine.
func (s *Service) sweepCheckpoints(ctx context.Context, live map[string]string) error {
	ids, err := s.Checkpoints.ids()
	errs := []error{err}
	for _, id := range ids {
		if _, ok := live[id]; ok || !s.Network.Abandoned(id) {
			continue
		}
		if err := s.Network.Stop(ctx, id); err != nil {
			errs = append(errs, err)
			continue
		}
		s.Log.Info("network of a sandbox of cri-dockerd removed that Docker does not have any more", "sandbox", id)
		errs = append(errs, s.Checkpoints.remove(id))
	}
	return errors.Join(errs...)
}
