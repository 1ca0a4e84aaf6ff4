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

// The guest's address, and where it finds the control plane: nothing else is there (qemu: -netdev user, restrict).
const (
	guestIP        = "10.0.2.15"
	controlPlaneIP = "10.0.2.100"
)

// asRelay is how qemu starts this program for each connection of the guest's.
const asRelay = "relay"

// controlPlane is a cluster's without a node. It runs beside the guest.
type controlPlane struct {
	cmd   *exec.Cmd
	stdin io.Closer // the control plane ends with it
	found []byte    // a kubeapitest.Remote
	said  strings.Builder
}

func startControlPlane(ctx context.Context) (*controlPlane, error) {
	found, theirs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer found.Close()
	c := &controlPlane{cmd: exec.CommandContext(ctx, "../bin/vm/test.test", "-test.run=^TestControlPlane$",
		"-test.timeout=0")}
	c.cmd.Dir, c.cmd.ExtraFiles, c.cmd.Stdout, c.cmd.Stderr = "test", []*os.File{theirs}, &c.said, &c.said
	c.cmd.Env = append(os.Environ(), "BERTH_TEST_CONTROL_PLANE=1")
	c.cmd.Cancel, c.cmd.WaitDelay = func() error { return c.stdin.Close() }, 30*time.Second
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, errors.Join(err, theirs.Close())
	}
	err = c.cmd.Start()
	if err = errors.Join(err, theirs.Close()); err != nil {
		return nil, err
	}
	if c.found, err = io.ReadAll(found); err == nil && len(c.found) > 0 {
		return c, nil
	}
	return nil, errors.Join(errors.New("it did not start"), err, c.stop())
}

// stop returns when nothing of it is left.
func (c *controlPlane) stop() error {
	if err := c.stdin.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("the control plane ended: %w; it said:\n%s", err, c.said.String())
	}
	return nil
}

// network are qemu's arguments for a network on which the guest finds the control plane's ports.
func (c *controlPlane) network() ([]string, error) {
	var ports struct{ API, Nodes string }
	if err := json.Unmarshal(c.found, &ports); err != nil {
		return nil, fmt.Errorf("read where the control plane is: %w", err)
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
