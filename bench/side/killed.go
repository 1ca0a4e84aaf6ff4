package side

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/bench/stamp"
)

// Kill kills the process of a pod's only container, and returns the time until the first instruction of the next one.
func (b *Berth) Kill(ctx context.Context, podName string) (time.Duration, error) {
	_, pid, err := b.Container(ctx, podName)
	if err != nil {
		return 0, err
	}
	return killed(ctx, b.Stamps, podName, pid)
}

// Kill does the same. When the Engine reports the end, a new container takes the place of the dead one, which stays.
func (d *Docker) Kill(ctx context.Context, podName string) (time.Duration, error) {
	d.mu.Lock()
	ids := d.pods[podName]
	d.mu.Unlock()
	found, err := d.daemon.Client().ContainerInspect(ctx, ids[len(ids)-1], client.ContainerInspectOptions{})
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := d.daemon.Client().Events(ctx, client.EventsListOptions{
		Filters: client.Filters{}.Add("container", found.Container.ID).Add("event", "die")})
	restarted := make(chan error, 1)
	go func() {
		select {
		case <-events.Messages:
			restarted <- d.again(ctx, podName, &found.Container)
		case err := <-events.Err:
			restarted <- err
		}
	}()
	took, err := killed(ctx, d.stamps, podName, found.Container.State.Pid)
	if err != nil {
		cancel()
	}
	return took, errors.Join(err, <-restarted)
}

// again starts a container like a dead one.
func (d *Docker) again(ctx context.Context, pod string, dead *container.InspectResponse) error {
	created, err := d.daemon.Client().ContainerCreate(ctx, client.ContainerCreateOptions{Name: dead.Name + "-again",
		Config: &container.Config{Image: dead.Config.Image, Cmd: dead.Config.Cmd}, HostConfig: dead.HostConfig})
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.pods[pod] = append(d.pods[pod], created.ID)
	d.mu.Unlock()
	_, err = d.daemon.Client().ContainerStart(ctx, created.ID, client.ContainerStartOptions{})
	return err
}

// killed kills a process, and returns the time until the next container of its pod has written the stamp.
func killed(ctx context.Context, stamps, podName string, pid int) (time.Duration, error) {
	end, next, err := End(ctx, stamps, podName, pid, unix.SIGKILL)
	return next.Sub(end), err
}

// End ends the process of a pod's first container with a signal. It returns when, and when the next instance of the
// container has written its stamp.
func End(ctx context.Context, stamps, podName string, pid int, signal unix.Signal) (end, next time.Time, err error) {
	name := StampName(podName, 0)
	if err := os.Remove(filepath.Join(stamps, name)); err != nil {
		return end, next, err
	}
	watch, err := stamp.Watch(stamps, name)
	if err != nil {
		return end, next, err
	}
	defer watch.Close()
	end = time.Now()
	if err := unix.Kill(pid, signal); err != nil {
		return end, next, fmt.Errorf("end the container of pod %s: %w", podName, err)
	}
	next, err = watch.Last(ctx)
	return end, next, err
}
