package ui

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/gorilla/websocket"
	"k8s.io/client-go/tools/remotecommand"

	"github.com/berth-run/berth/internal/api/client"
)

// shellCommand starts the best shell of an image. Every shell knows the colours of the page's terminal.
var shellCommand = []string{"/bin/sh", "-c",
	`TERM=xterm-256color; export TERM; if [ -x /bin/bash ]; then exec /bin/bash; fi; exec /bin/sh`}

// shell runs a shell in a container for a WebSocket. Binary messages have the keys that the user types and the output
// of the terminal. A text message of the page has the size of the terminal. The WebSocket ends as a stream does
// (finish).
func (s *Server) shell(w http.ResponseWriter, r *http.Request) {
	typed, keys := io.Pipe()
	sizes := make(chan remotecommand.TerminalSize, 1)
	conn, ctx, err := upgrade(w, r, func(kind int, message io.Reader) error {
		if kind == websocket.BinaryMessage {
			_, err := io.Copy(keys, message)
			return err
		}
		return resize(sizes, message)
	})
	if err != nil {
		return // upgrade has answered
	}
	defer func() { _ = conn.Close() }() // the browser may be gone already
	defer context.AfterFunc(ctx, func() { _ = keys.Close() })()
	defer func() { _ = keys.Close() }() // ends the copies into and out of the pipe
	container := s.agent.Pod(key(r)).Container(r.URL.Query().Get("container"))
	err = container.Exec(ctx, shellCommand, true,
		client.Streams{In: typed, Out: screen{conn}, Sizes: terminal{ctx, sizes}})
	if exit, ok := errors.AsType[*client.ExitError](err); ok {
		err = exit // the page names the pod
	}
	finish(conn, err)
}

// screen writes the output of a terminal into a WebSocket.
type screen struct{ conn *websocket.Conn }

func (s screen) Write(data []byte) (int, error) {
	return len(data), s.conn.WriteMessage(websocket.BinaryMessage, data)
}

// resize puts the size of a terminal into sizes. It replaces a size that was not read yet.
func resize(sizes chan remotecommand.TerminalSize, message io.Reader) error {
	var size struct{ Columns, Rows uint16 }
	if err := json.NewDecoder(message).Decode(&size); err != nil {
		return err
	}
	select {
	case <-sizes:
	default:
	}
	sizes <- remotecommand.TerminalSize{Width: size.Columns, Height: size.Rows}
	return nil
}

// terminal implements remotecommand.TerminalSizeQueue.
type terminal struct {
	ctx   context.Context
	sizes <-chan remotecommand.TerminalSize
}

// Next returns the next size of the terminal, or nil at the end.
func (t terminal) Next() *remotecommand.TerminalSize {
	select {
	case <-t.ctx.Done():
		return nil
	case size := <-t.sizes:
		return &size
	}
}
