package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"time"
)

// The addresses of the guest and of the control plane. The guest reaches nothing else (qemu: -netdev user, restrict).
const (
	guestIP        = "10.0.2.15"
	controlPlaneIP = "10.0.2.100"
)

// asRelay is the argument of this program when qemu starts it, which it does for each connection of the guest.
const asRelay = "relay"

// controlPlane is the control plane of a cluster for the guest. It runs on the host.
type controlPlane struct {
	cmd    *exec.Cmd
	stdin  io.Closer // closing it ends the control plane
	remote []byte    // a kubeapitest.Remote as JSON
	output strings.Builder
}

func startControlPlane(ctx context.Context) (*controlPlane, error) {
	remote, childEnd, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer remote.Close()
	c := &controlPlane{cmd: exec.CommandContext(ctx, "../bin/vm/test.test", "-test.run=^TestControlPlane$",
		"-test.timeout=0")}
	c.cmd.Dir, c.cmd.ExtraFiles, c.cmd.Stdout, c.cmd.Stderr = "test", []*os.File{childEnd}, &c.output, &c.output
	c.cmd.Env = append(os.Environ(), "BERTH_TEST_CONTROL_PLANE=1")
	c.cmd.Cancel, c.cmd.WaitDelay = func() error { return c.stdin.Close() }, 30*time.Second
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, errors.Join(err, childEnd.Close())
	}
	err = c.cmd.Start()
	if err = errors.Join(err, childEnd.Close()); err != nil {
		return nil, err
	}
	if c.remote, err = io.ReadAll(remote); err == nil && len(c.remote) > 0 {
		return c, nil
	}
	return nil, errors.Join(errors.New("its process ended before it was ready"), err, c.stop())
}

// stop ends the control plane and waits until its processes have ended.
func (c *controlPlane) stop() error {
	if err := c.stdin.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("control plane failed: %w; its output:\n%s", err, c.output.String())
	}
	return nil
}

// network returns qemu's arguments for a network. Through it the guest reaches the control plane's ports.
func (c *controlPlane) network() ([]string, error) {
	var ports struct{ API, Nodes string }
	if err := json.Unmarshal(c.remote, &ports); err != nil {
		return nil, fmt.Errorf("read the control plane's ports: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	nic := "user,model=virtio-net-pci,restrict=on"
	for _, port := range []string{ports.API, ports.Nodes} {
		nic += fmt.Sprintf(",guestfwd=tcp:%s:%s-cmd:%s %s 127.0.0.1:%s", controlPlaneIP, port, self, asRelay, port)
	}
	return []string{"-nic", nic}, nil
}

// relay passes bytes between standard input, which is a socket, and an address.
func relay(address string) error {
	guest, err := net.FileConn(os.Stdin)
	if err != nil {
		return err
	}
	server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", address)
	if err != nil {
		return err
	}
	ended := make(chan error)
	go func() {
		_, err := io.Copy(server, guest)
		ended <- err
	}()
	go func() {
		_, err := io.Copy(guest, server)
		ended <- err
	}()
	return <-ended
}
