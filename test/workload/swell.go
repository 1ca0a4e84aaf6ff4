package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// swellStep is how much memory swell takes at once, in bytes.
const swellStep = 256 << 10

// swell takes memory step by step at a rate in bytes a second. After each step it writes a line to a file: the
// machine's time in ns, and the bytes so far. Its memory is in small pages, so that the kernel takes at most a step at
// once.
func swell(args []string) error {
	size, err1 := number(args, 0, 0)
	rate, err2 := number(args, 1, 0)
	if err := errors.Join(err1, err2); err != nil || len(args) != 3 || rate <= 0 {
		return errors.Join(errUsage, err)
	}
	steps, err := os.Create(args[2])
	if err != nil {
		return err
	}
	memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("take memory: %w", err)
	}
	if err := unix.Madvise(memory, unix.MADV_NOHUGEPAGE); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("ask for small pages: %w", err)
	}
	lines := bufio.NewWriterSize(steps, 64)
	began := time.Now()
	for at := 0; at < size; {
		for end := min(size, at+swellStep); at < end; at += os.Getpagesize() {
			memory[at] = 1
		}
		fmt.Fprintln(lines, time.Now().UnixNano(), at)
		if err := lines.Flush(); err != nil {
			return err
		}
		time.Sleep(time.Until(began.Add(time.Duration(float64(at) / float64(rate) * float64(time.Second)))))
	}
	return steps.Close()
}
