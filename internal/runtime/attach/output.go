package attach

import (
	"io"
	"maps"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// output is one output of a container that has clients.
type output struct {
	path   string
	reader *os.File
	// writer keeps the output open while the container runs: the end of a shim is not the end of the output.
	writer *os.File
	// clients is guarded by the lock of the Server.
	clients map[*client]bool
}

// client gets a copy of an output.
type client struct {
	output *output
	to     io.Writer
	done   chan struct{} // closed when the client gets no more
}

// openOutput opens an output. It drops what earlier clients have not read.
func openOutput(path string) (*output, error) {
	reader, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if err := drop(reader); err != nil {
		_ = reader.Close()
		return nil, err
	}
	writer, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		_ = reader.Close()
		return nil, err
	}
	return &output{path: path, reader: reader, writer: writer, clients: map[*client]bool{}}, nil
}

// drop drops the present content of a FIFO.
func drop(reader *os.File) error {
	raw, err := reader.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		var size int
		if size, failed = unix.IoctlGetInt(int(fd), unix.TIOCINQ); size > 0 {
			_, failed = unix.Read(int(fd), make([]byte, size))
		}
	})
	if err != nil {
		return err
	}
	return failed
}

// join adds a client to an output, which it opens for the first one.
func (s *Server) join(path string, to io.Writer) (*client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.open[path]
	if !ok {
		var err error
		if o, err = openOutput(path); err != nil {
			return nil, err
		}
		s.open[path] = o
		go s.pump(o)
	}
	c := &client{o, to, make(chan struct{})}
	o.clients[c] = true
	return c, nil
}

// leave removes a client. It closes the output after the last one.
func (s *Server) leave(c *client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.output.clients[c] {
		return
	}
	delete(c.output.clients, c)
	close(c.done)
	if len(c.output.clients) == 0 {
		s.close(c.output)
	}
}

// close closes an output. Its clients get no more. Call it with the lock.
func (s *Server) close(o *output) {
	if s.open[o.path] == o {
		delete(s.open, o.path)
	}
	for c := range o.clients {
		close(c.done)
	}
	clear(o.clients)
	_, _ = o.reader.Close(), o.writer.Close()
}

// finish lets the outputs of a container that has ended end, when the shim has ended them. Call it with the lock.
func (s *Server) finish(paths []string) {
	for _, path := range paths {
		if o, ok := s.open[path]; ok {
			_ = o.writer.Close()
		}
	}
}

// pump writes an output to its clients until it ends or has none. A slow client delays the others.
func (s *Server) pump(o *output) {
	const size = 32 << 10
	buffer := make([]byte, size)
	for {
		n, err := o.reader.Read(buffer)
		if err != nil { // then n is 0
			break
		}
		for _, c := range s.clientsOf(o) {
			if _, failed := c.to.Write(buffer[:n]); failed != nil {
				s.leave(c)
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.close(o)
}

func (s *Server) clientsOf(o *output) []*client {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(o.clients))
}
