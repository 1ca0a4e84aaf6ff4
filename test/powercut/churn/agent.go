package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-run/berth/internal/api/client"
)

// logFile is in memory, so that the log can be read whatever the disk does.
const logFile = "/run/agent.log"

// agent is the agent of the machine.
type agent struct {
	cmd   *exec.Cmd
	ended chan error // has the agent's exit
}

// prepare makes the agent's directories and its configuration.
func prepare() error {
	if err := os.MkdirAll(filepath.Join(root, "manifests"), 0o755); err != nil {
		return err
	}
	return os.WriteFile("/run/config.yaml", []byte(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
podLogsDir: `+root+`/logs
evictionHard: {memory.available: 50Mi}
imageGCHighThresholdPercent: 100
crashLoopBackOff: {maxContainerRestartPeriod: 2s}
`), 0o644)
}

// start starts the agent and waits until it answers.
func (a *agent) start(ctx context.Context, c *client.Client) error {
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	a.cmd = exec.CommandContext(ctx, "/berth/bin/berth", "agent", "--root-dir", root, "--hostname-override", "node1",
		"--config", "/run/config.yaml")
	a.cmd.Stdout, a.cmd.Stderr = log, log
	if err := a.cmd.Start(); err != nil {
		return err
	}
	a.ended = make(chan error, 1)
	go func() { a.ended <- a.cmd.Wait() }()
	return a.until(ctx, "the agent to answer", func() error { return c.Healthy(ctx) })
}

// until waits until a condition holds, and fails when the agent ends.
func (a *agent) until(ctx context.Context, what string, holds func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		err := holds()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waited %v for %s: %w", patience, what, err)
		case exit := <-a.ended:
			a.ended <- exit
			return fmt.Errorf("waited for %s, but the agent ended: %w", what, errors.Join(exit, err))
		case <-tick.C:
		}
	}
}

// stop ends the agent. Its pods run on.
func (a *agent) stop() error {
	if err := a.cmd.Process.Signal(unix.SIGTERM); err != nil {
		return err
	}
	return <-a.ended
}

// stacks returns the end of the agent's log, what the agent says of its pods, and its goroutines. It ends the agent.
func (a *agent) stacks() string {
	end := a.tail(8000)
	for _, args := range []string{"get pods -A -o wide", "get problems", "describe pod p0", "describe pod p1"} {
		out, err := exec.CommandContext(context.Background(), "/berth/bin/berth",
			append([]string{"--root-dir", root}, strings.Fields(args)...)...).CombinedOutput()
		end += fmt.Sprintf("\nberth %s: %v\n%s", args, err, out)
	}
	if a.cmd != nil && a.cmd.Process.Signal(unix.SIGQUIT) == nil {
		exit := <-a.ended
		if _, goroutines, found := strings.Cut(a.tail(-1), "SIGQUIT: quit"); found {
			end += fmt.Sprintf("\nthe agent ended with %v%s", exit, goroutines)
		}
	}
	return end
}

// tail returns the end of the agent's log, or all of it.
func (a *agent) tail(size int) string {
	text, err := os.ReadFile(logFile)
	if err != nil {
		return err.Error()
	}
	if size >= 0 {
		text = text[max(0, len(text)-size):]
	}
	return string(text)
}
