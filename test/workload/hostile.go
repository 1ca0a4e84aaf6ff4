package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// harm runs one of the actions of hostile pods.
func harm(action string, args []string) error {
	switch action {
	case "bomb":
		return bomb()
	case "pour":
		return pour(args)
	case "files":
		return files(args)
	case "deep":
		return deep(args)
	case "special":
		return special(args)
	case "drip":
		return drip(args)
	}
	return fmt.Errorf("unknown action %q\n%s", action, usage)
}

// bomb starts copies of itself, and each copy does the same. It ignores errors, which come from the pod's limits.
func bomb() error {
	for {
		child := exec.CommandContext(context.Background(), "/proc/self/exe", "bomb")
		if child.Start() == nil {
			go func() { _ = child.Wait() }() // reaps it
			continue
		}
		time.Sleep(time.Millisecond)
	}
}

// pour writes bytes without a line break, a hundredth of the rate every 10 ms.
func pour(args []string) error {
	count, err1 := number(args, 1, 0)
	rate, err2 := number(args, 2, 1<<30)
	if err := errors.Join(err1, err2); err != nil || len(args) < 2 {
		return errors.Join(errUsage, err)
	}
	file, err := os.OpenFile(args[0], os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	piece := bytes.Repeat([]byte("x"), max(1, rate/100))
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for left := count; count == 0 || left > 0; <-tick.C {
		if count > 0 {
			piece = piece[:min(left, len(piece))]
		}
		if _, err := file.Write(piece); err != nil {
			return err
		}
		left -= len(piece)
	}
	return file.Close()
}

func files(args []string) error {
	count, err := number(args, 1, 0)
	if err != nil || len(args) != 2 {
		return errors.Join(errUsage, err)
	}
	for i := range count {
		file, err := os.Create(filepath.Join(args[0], fmt.Sprint(i)))
		if err != nil {
			return err
		}
		if err := file.Close(); err != nil {
			return err
		}
	}
	return nil
}

// deep creates directories by names relative to the last one, because the whole path becomes too long for one call.
func deep(args []string) error {
	count, err := number(args, 1, 0)
	if err != nil || len(args) != 2 {
		return errors.Join(errUsage, err)
	}
	if err := os.Chdir(args[0]); err != nil {
		return err
	}
	for range count {
		if err := errors.Join(os.Mkdir("d", 0o755), os.Chdir("d")); err != nil {
			return err
		}
	}
	return nil
}

// special puts files that are not regular where a program of the node may expect regular ones. A pattern stands for
// every directory that matches.
func special(patterns []string) error {
	for _, pattern := range patterns {
		dirs, err := filepath.Glob(pattern)
		if err != nil || len(dirs) == 0 {
			return fmt.Errorf("%s: no directory: %w", pattern, err)
		}
		for _, dir := range dirs {
			if err := specialIn(dir); err != nil {
				return err
			}
		}
	}
	return nil
}

func specialIn(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	names := []string{"fifo"}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	for _, name := range append(names, "socket", "device") {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := unix.Mkfifo(filepath.Join(dir, name), 0o666); err != nil {
			return err
		}
	}
	var config net.ListenConfig
	_, err = config.Listen(context.Background(), "unix", filepath.Join(dir, "socket"))
	const devFull = 1<<8 | 7
	return errors.Join(err, unix.Mknod(filepath.Join(dir, "device"), unix.S_IFCHR|0o666, devFull))
}

func drip(args []string) error {
	if len(args) != 1 {
		return errUsage
	}
	var config net.ListenConfig
	listener, err := config.Listen(context.Background(), "tcp", args[0])
	if err != nil {
		return err
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			for i := 0; ; i++ {
				b := byte('x')
				if header := "HTTP/1.1 200 OK\r\n\r\n"; i < len(header) {
					b = header[i]
				}
				if _, err := conn.Write([]byte{b}); err != nil {
					return // the client has gone
				}
				time.Sleep(50 * time.Millisecond)
			}
		}()
	}
}
