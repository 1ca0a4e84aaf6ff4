package endpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"k8s.io/kubelet/config/v1beta1"

	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/cri"
)

// Embedded is the value of containerRuntimeEndpoint for the embedded runtime.
const Embedded = config.EmbeddedRuntime

// patience is how long a runtime may take to answer with its version.
const patience = 5 * time.Second

// Choose reads the facts that the choice depends on, chooses, and logs the reason.
func Choose(ctx context.Context, c *config.Config, log *slog.Logger) (Choice, error) {
	choice, err := choose(ctx, c)
	if err != nil {
		return choice, fmt.Errorf("choose one: %w", err)
	}
	log.Info("container runtime chosen", "endpoint", choice.Name(), "because", choice.Reason)
	return choice, nil
}

// Effective returns a copy of kc with the endpoint of the chosen runtime and with the cgroup driver that it uses.
func (c Choice) Effective(kc *v1beta1.KubeletConfiguration, driver string) *v1beta1.KubeletConfiguration {
	kc = kc.DeepCopy()
	kc.ContainerRuntimeEndpoint, kc.CgroupDriver = c.Name(), driver
	return kc
}

// Name returns the value of containerRuntimeEndpoint that makes this choice.
func (c Choice) Name() string { return cmp.Or(c.Endpoint, Embedded) }

func choose(ctx context.Context, c *config.Config) (Choice, error) {
	f := Facts{Configured: c.Runtime.Endpoint, Joined: c.Runtime.KubeletsDefault != "",
		Default: c.Runtime.KubeletsDefault}
	if f.Configured != "" || !f.Joined {
		return decide(f)
	}
	var err, err2 error
	f.Used, err = EmbeddedUsed(c.RootDir)
	f.Pods, err2 = filled(filepath.Join(c.RootDir, "pods"))
	if err := errors.Join(err, err2); err != nil {
		return Choice{}, err
	}
	if !f.Used {
		f.Trouble = answers(ctx, f.Default)
	}
	if ctx.Err() != nil {
		return Choice{}, ctx.Err()
	}
	return decide(f)
}

// EmbeddedUsed reports whether the embedded runtime has run on a root directory.
func EmbeddedUsed(root string) (bool, error) { return filled(filepath.Join(root, "runtime")) }

// EmbeddedPods reports whether the embedded runtime has pods on a root directory. containerd has a directory for each
// sandbox.
func EmbeddedPods(root string) (bool, error) {
	return filled(filepath.Join(root, "runtime/io.containerd.grpc.v1.cri/sandboxes"))
}

// answers asks a runtime for its version.
func answers(ctx context.Context, endpoint string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	client, err := cri.Dial(ctx, endpoint, cri.Options{})
	if err != nil {
		return err
	}
	return client.Close()
}

// filled reports whether a directory exists and is not empty.
func filled(dir string) (bool, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return len(entries) > 0, err
}
