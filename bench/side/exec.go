package side

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/bench/proc"
	"github.com/berth-run/berth/bench/stamp"
	"github.com/berth-run/berth/internal/base/retry"
)

// Usage is the CPU time of a side, in seconds.
type Usage struct {
	Process  float64 // agent and runtime, or runtime and the bare client
	Shims    float64 // one shim for each pod
	Children float64 // runc and the commands
}

// Usage is the CPU time so far of a side's process, of the shims, and of this process, which is the floor's client. It
// finds the shims by the root directory in their arguments.
func (p *Process) Usage() (u Usage, err error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return u, err
	}
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(line), p.Root) {
			continue // another program, or a process that has ended
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			return u, err
		}
		used, err := proc.CPU(pid)
		switch {
		case err != nil: // the process has ended; its time counts as its parent's Children
		case pid == p.PID():
			u.Process += used.Own.Seconds()
			u.Children += used.Children.Seconds()
		default:
			u.Shims += used.Own.Seconds()
			u.Children += used.Children.Seconds()
		}
	}
	client, err := proc.CPU(unix.Getpid())
	u.Process += client.Own.Seconds()
	return u, err
}

// Exec runs a command that writes a stamp, and returns the time from its first instruction to the end of the call.
func (f *Floor) Exec(ctx context.Context, id string, command []string) (time.Duration, error) {
	if _, err := f.cri.Runtime.ExecSync(ctx,
		&runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: command, Timeout: 5}); err != nil {
		return 0, err
	}
	ended := time.Now()
	began, ok := stamp.Read(filepath.Join(f.Stamps, "probe"))
	if !ok {
		return 0, fmt.Errorf("read the stamp of the command in container %s: it wrote none", id)
	}
	return ended.Sub(began), nil
}

// ExecEachSecond runs a command each second in the first container of every pod until run returns.
func (f *Floor) ExecEachSecond(ctx context.Context, prefix string, command []string, run func() error) error {
	pods := f.withPrefix(prefix)
	return eachSecond(ctx, len(pods), run, func(ctx context.Context, i int) {
		_, err := f.cri.Runtime.ExecSync(ctx,
			&runtimeapi.ExecSyncRequest{ContainerId: pods[i].ids[0], Cmd: command, Timeout: 10})
		if err == nil {
			f.commands.Add(1)
		}
	})
}

// ExecEachSecond runs a command each second in the first container of every pod until run returns. It makes the calls
// that an exec probe needs: create, attach and inspect.
func (d *Docker) ExecEachSecond(ctx context.Context, prefix string, command []string, run func() error) error {
	containers := d.withPrefix(prefix)
	return eachSecond(ctx, len(containers), run, func(ctx context.Context, i int) {
		if d.exec(ctx, containers[i], command) == nil {
			d.commands.Add(1)
		}
	})
}

func (d *Docker) exec(ctx context.Context, container string, command []string) error {
	engine := d.daemon.Client()
	created, err := engine.ExecCreate(ctx, container,
		client.ExecCreateOptions{Cmd: command, AttachStdout: true, AttachStderr: true})
	if err != nil {
		return err
	}
	attached, err := engine.ExecAttach(ctx, created.ID, client.ExecAttachOptions{})
	if err != nil {
		return err
	}
	defer attached.Close()
	if _, err := io.Copy(io.Discard, attached.Reader); err != nil {
		return err
	}
	ended, err := engine.ExecInspect(ctx, created.ID, client.ExecInspectOptions{})
	if err == nil && ended.ExitCode != 0 {
		err = fmt.Errorf("%q in container %s ended with %d", command, container, ended.ExitCode)
	}
	return err
}

// eachSecond calls exec for each of n pods each second until run returns. It spreads the pods over the second, as if
// they had started one after the other.
func eachSecond(ctx context.Context, n int, run func() error, exec func(ctx context.Context, i int)) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for i := range n {
		wg.Go(func() {
			if retry.Sleep(ctx, time.Duration(i)*time.Second/time.Duration(n)) != nil {
				return
			}
			tick := time.NewTicker(time.Second)
			defer tick.Stop()
			for ctx.Err() == nil {
				exec(ctx, i)
				select {
				case <-ctx.Done():
				case <-tick.C:
				}
			}
		})
	}
	return run()
}

// Commands returns the number of commands that the runtime has run for the agent.
func (b *Berth) Commands(ctx context.Context) (int, error) {
	var dialer net.Dialer
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", b.Client.Socket())
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://berth/metrics", nil)
	if err != nil {
		return 0, err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(),
			`kubelet_runtime_operations_total{operation_type="exec_sync"} `); ok {
			return strconv.Atoi(value)
		}
	}
	return 0, fmt.Errorf("read the agent's metrics: no count of commands in the answer (%s)", response.Status)
}

// Commands returns the number of commands that ExecEachSecond has run.
func (f *Floor) Commands(context.Context) (int, error) { return int(f.commands.Load()), nil }

// Commands returns the number of commands that ExecEachSecond has run.
func (d *Docker) Commands(context.Context) (int, error) { return int(d.commands.Load()), nil }
