package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/cri"
)

const (
	binary    = "bin/berth"
	archive   = "bin/workload.tar"
	image     = "example.com/workload:1"
	namespace = "default"

	configHeader = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	// patience bounds every wait. The measurement fails after it.
	patience = 2 * time.Minute
)

// side runs pods in one of the two ways that bench compares.
type side interface {
	// start starts the pods at once, with names that begin with prefix. It returns the time until the first instruction
	// of the last container.
	start(ctx context.Context, prefix string, pods int, s shape, concurrency int) (time.Duration, error)
	// remove ends the pods, and returns the time until they have no container, sandbox, cgroup or directory.
	remove(ctx context.Context, prefix string, pods, concurrency int) (time.Duration, error)
	// host is the process that contains the runtime.
	host() *process
}

// process is a side's process with its root directory and its CRI client.
type process struct {
	root, stamps string
	cmd          *exec.Cmd
	cri          *cri.Client
	// suffix is the end that the side adds to the names of pods. Berth adds the node's name to pods from manifests.
	suffix string
	// remains are patterns of the files and cgroups of pods. They match nothing after all pods have ended.
	remains []string
}

func (p *process) host() *process { return p }

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) config() string { return filepath.Join(p.root, "config.yaml") }

func (p *process) socket() string { return "unix://" + filepath.Join(p.root, "cri.sock") }

// launch writes the configuration and starts the binary.
func (p *process) launch(config string, args ...string) error {
	if err := os.MkdirAll(p.stamps, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(p.config(), []byte(configHeader+config), 0o644); err != nil {
		return err
	}
	client, err := cri.New(p.socket(), cri.Options{Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		return err
	}
	p.cri = client
	p.cmd = exec.Command(binary, append(args, "--log-level", "warn", "--root-dir", p.root, "--config", p.config())...)
	p.cmd.Stderr = os.Stderr
	return p.cmd.Start()
}

// end ends the process and removes everything of it from the machine.
func (p *process) end() error {
	err := p.cmd.Process.Signal(unix.SIGTERM)
	_ = p.cmd.Wait() // the error says that the signal ended it
	out, resetErr := exec.Command(binary, "reset", "--yes", "--root-dir", p.root, "--config",
		p.config()).CombinedOutput()
	if resetErr != nil {
		err = errors.Join(err, fmt.Errorf("reset: %w\n%s", resetErr, out))
	}
	return errors.Join(err, p.cri.Close())
}

// nothingLeft waits until no pod has a container, sandbox, cgroup or directory.
func (p *process) nothingLeft(ctx context.Context) error {
	var remaining string
	err := poll(ctx, 2*time.Millisecond, func() (done bool, err error) {
		remaining, err = p.left(ctx)
		return remaining == "", err
	})
	if err != nil {
		return fmt.Errorf("wait until %s is removed: %w", remaining, err)
	}
	return nil
}

// left names something that pods still have, or returns "".
func (p *process) left(ctx context.Context) (string, error) {
	containers, err := p.cri.Runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return "", err
	}
	if len(containers.Containers) > 0 {
		return "container " + containers.Containers[0].Id, nil
	}
	boxes, err := p.cri.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return "", err
	}
	if len(boxes.Items) > 0 {
		return "sandbox " + boxes.Items[0].Id, nil
	}
	for _, pattern := range p.remains {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) > 0 {
			return strings.Join(found, ", "), err
		}
	}
	return "", nil
}

// container waits until the container of a pod with one container runs, and returns its ID and process.
func (p *process) container(ctx context.Context, podName string) (id string, pid int, err error) {
	request := &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		LabelSelector: map[string]string{"io.kubernetes.pod.name": podName + p.suffix},
		State:         &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}}
	err = poll(ctx, 2*time.Millisecond, func() (bool, error) {
		list, err := p.cri.Runtime.ListContainers(ctx, request)
		if err != nil || len(list.Containers) == 0 {
			return false, err
		}
		id = list.Containers[0].Id
		return true, nil
	})
	if err != nil {
		return "", 0, fmt.Errorf("find the container of pod %s: %w", podName, err)
	}
	status, err := p.cri.Runtime.ContainerStatus(ctx,
		&runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return "", 0, err
	}
	var info struct{ Pid int }
	if err := json.Unmarshal([]byte(status.Info["info"]), &info); err != nil || info.Pid <= 0 {
		return "", 0, fmt.Errorf("find the process of container %s: no pid in %q: %w", id, status.Info["info"], err)
	}
	return id, info.Pid, nil
}

// poll calls check, with pauses between, until it returns true or an error, or patience is over.
func poll(ctx context.Context, pause time.Duration, check func() (done bool, err error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		done, err := check()
		if err != nil || done {
			return err
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
