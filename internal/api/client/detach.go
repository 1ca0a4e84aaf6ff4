package client

import (
	"context"
	"errors"
	"io"
	"time"
)

const (
	// detachGrace is how long a runtime has to end an attach after the end of its input.
	detachGrace = 2 * time.Second
	// pipeSize is how many bytes a pipe takes from a writer although nobody reads (pipe(7)).
	pipeSize = 64 << 10
)

// errDetached ends a stream whose input has ended, if the runtime does not end it.
var errDetached = errors.New("the input has ended")

// input is the input of an attach. Once it has ended, it ends the whole stream after detachGrace. Runtimes should end
// the stream themselves, but containerd does not if the input ends before it has connected the output
// (containerd/containerd, internal/cri/io/container_io.go), and Docker Engine never does.
//
// The stream of an input that is larger than a pipe is not ended: the runtime may still be writing it to a process
// that reads slowly.
type input struct {
	io.Reader
	read   int64
	detach context.CancelCauseFunc
}

func (i *input) Read(p []byte) (int, error) {
	n, err := i.Reader.Read(p)
	i.read += int64(n)
	if err != nil && i.read <= pipeSize {
		time.AfterFunc(detachGrace, func() { i.detach(errDetached) })
	}
	return n, err
}
