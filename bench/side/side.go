package side

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
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/wait"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/bench/stamp"
	"github.com/berth-run/berth/internal/cri"
)

const (
	// Binary is the path of the measured program.
	Binary = "bin/berth"
	// Archive is the path of the archive with the image of the pods' containers.
	Archive = "bin/workload.tar"
	image   = "example.com/workload:1"
	// Namespace is the namespace of all pods and objects.
	Namespace = "default"

	configHeader = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	// thresholds keep the sides from evicting pods, because the disk of a busy machine may be nearly full.
	thresholds = "evictionHard: {memory.available: 50Mi}\n"
	// Patience bounds every wait. The measurement fails after it.
	Patience = stamp.Patience
)

// Side runs pods in one of the ways that bench compares.
type Side interface {
	// Start starts the pods at once, with names that begin with prefix. It returns the time until the first instruction
	// of the last container.
	Start(ctx context.Context, prefix string, pods int, s Shape, concurrency int) (time.Duration, error)
	// Remove ends the pods, and returns the time until they have no container, sandbox, cgroup or directory.
	Remove(ctx context.Context, prefix string, pods, concurrency int) (time.Duration, error)
	// Group is the cgroup of everything that the side runs.
	Group() Group
}

// Hosted is a side with a process that contains the runtime.
type Hosted interface {
	Side
	Host() *Process
}

// Dirs are the directories of a side. State that does not survive a reboot is in Run, or in Root if Run is empty.
type Dirs struct{ Root, Run string }

// Beside returns the directories of a side called name, next to the directories d of another one.
func Beside(d Dirs, name string) Dirs {
	return Dirs{Root: filepath.Join(filepath.Dir(d.Root), name), Run: filepath.Join(filepath.Dir(d.Run), name)}
}

// onDirs are the flags of a program of Berth that works on the directories of a side.
func onDirs(d Dirs) []string {
	flags := []string{"--root-dir", d.Root}
	if d.Run != "" {
		flags = append(flags, "--run-dir", d.Run)
	}
	return flags
}

// Process is a side's process with its directories and its CRI client.
type Process struct {
	Dirs

	Stamps string // the directory of the pods' stamps
	// Suffix is the end that the side adds to the names of pods. Berth adds the node's name to pods from manifests.
	Suffix string

	group Group
	cmd   *exec.Cmd
	cri   *cri.Client
	// remains are patterns of the files and cgroups of pods. They match nothing after all pods have ended.
	remains []string
}

// Host is the process itself.
func (p *Process) Host() *Process { return p }

// Group is the cgroup of the process and of its pods.
func (p *Process) Group() Group { return p.group }

// PID is the number of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

func (p *Process) config() string { return filepath.Join(p.Root, "config.yaml") }

func (p *Process) socket() string { return "unix://" + filepath.Join(p.Root, "cri.sock") }

// binary is the path of the program of the side with a root directory.
func binary(root string) string { return root + ".berth" }

// install copies the program, as an installation does: the kernel maps more of a file that the linker has just written.
// Each side has a copy of its own, so that no two sides share memory.
func install(path string) error {
	from, err := os.Open(Binary)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Sync(), to.Close())
}

// launch writes the configuration and starts the binary.
func (p *Process) launch(config string, args ...string) error {
	client, err := dial(p.socket())
	if err = errors.Join(err, os.MkdirAll(p.Stamps, 0o755), p.group.make(), install(binary(p.Root)),
		os.WriteFile(p.config(), []byte(configHeader+config), 0o644)); err != nil {
		return err
	}
	p.cri = client
	args = slices.Concat(args, onDirs(p.Dirs), []string{"--log-level", "warn", "--config", p.config()})
	p.cmd = exec.Command(binary(p.Root), args...)
	p.cmd.Stderr = os.Stderr
	if err := p.cmd.Start(); err != nil {
		return err
	}
	return p.group.join(p.PID())
}

func dial(endpoint string) (*cri.Client, error) {
	return cri.New(endpoint, cri.Options{Log: slog.New(slog.DiscardHandler)})
}

// RemoveGroups removes the cgroup of all sides. Call it when all of them are closed.
func RemoveGroups() error { return removeGroup(".") }

// Close ends the process and removes everything of it from the machine. A process that the side has not started must
// have ended.
func (p *Process) Close() error {
	if p.cmd == nil {
		return errors.Join(p.cri.Close(), removeGroup(p.group.side))
	}
	err := p.cmd.Process.Signal(unix.SIGTERM)
	_ = p.cmd.Wait() // the error says that the signal ended it
	args := append(onDirs(p.Dirs), "reset", "--yes", "--config", p.config())
	out, resetErr := exec.Command(binary(p.Root), args...).CombinedOutput()
	if resetErr != nil {
		err = errors.Join(err, fmt.Errorf("reset: %w\n%s", resetErr, out))
	}
	return errors.Join(err, p.cri.Close(), removeGroup(p.group.side))
}

// nothingLeft waits until no pod has a container, sandbox, cgroup or directory.
func (p *Process) nothingLeft(ctx context.Context) error {
	var remaining string
	err := poll(ctx, 2*time.Millisecond, func(ctx context.Context) (bool, error) {
		left, err := p.left(ctx)
		if err == nil {
			remaining = left
		}
		return left == "", err
	})
	if err != nil {
		return fmt.Errorf("wait until %s is removed: %w", remaining, err)
	}
	return nil
}

// left names a container, sandbox, cgroup or directory that pods still have, or returns "".
func (p *Process) left(ctx context.Context) (string, error) {
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

// Container waits until the container of a pod with one container runs, and returns its ID and process.
func (p *Process) Container(ctx context.Context, podName string) (id string, pid int, err error) {
	request := &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		LabelSelector: map[string]string{"io.kubernetes.pod.name": podName + p.Suffix},
		State:         &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}}
	err = poll(ctx, 2*time.Millisecond, func(ctx context.Context) (bool, error) {
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

// poll calls check, with pauses between, until it returns true or an error, or Patience is over.
func poll(ctx context.Context, pause time.Duration, check wait.ConditionWithContextFunc) error {
	return wait.PollUntilContextTimeout(ctx, pause, Patience, true, check)
}
