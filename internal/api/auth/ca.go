package auth

import (
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	requestx509 "k8s.io/apiserver/pkg/authentication/request/x509"
)

// checkInterval is the shortest time between two checks of the client CA file. The file is checked only
// when a request arrives.
const checkInterval = time.Second

// clientCAs holds the authorities of a file that may be replaced at any time.
type clientCAs struct {
	file string
	once bool // the file is read only once
	log  *slog.Logger

	mu      sync.Mutex
	checked time.Time
	seen    version
	current *x509.CertPool
}

// version identifies the content of a file.
type version struct {
	modified time.Time
	size     int64
	inode    os.FileInfo
}

func (v version) same(is os.FileInfo) bool {
	return v.inode != nil && v.size == is.Size() && v.modified.Equal(is.ModTime()) && os.SameFile(v.inode, is)
}

func (c *clientCAs) load() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read(time.Now())
}

// read loads the file if it has changed. If the file cannot be read, the authorities of the last successful
// read stay in use.
func (c *clientCAs) read(now time.Time) error {
	c.checked = now
	fail := func(err error) error {
		return fmt.Errorf("read client CA file (authentication.x509.clientCAFile): %w", err)
	}
	is, err := os.Stat(c.file)
	if err != nil {
		return fail(err)
	}
	if c.seen.same(is) {
		return nil
	}
	data, err := os.ReadFile(c.file)
	if err != nil {
		return fail(err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return fail(fmt.Errorf("%s has no certificate in PEM", c.file))
	}
	if c.current != nil {
		c.log.Info("client CA file reloaded", "file", c.file)
	}
	c.current, c.seen = pool, version{is.ModTime(), is.Size(), is}
	return nil
}

// pool returns the current authorities, or nil if the file was never read.
func (c *clientCAs) pool() *x509.CertPool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.checked) >= checkInterval && (c.current == nil || !c.once) {
		if err := c.read(now); err != nil {
			c.log.Warn("cannot reload the client CA file, keeping the previous authorities", "error", err)
		}
	}
	return c.current
}

func (c *clientCAs) verifyOptions() (x509.VerifyOptions, bool) {
	o := requestx509.DefaultVerifyOptions()
	o.Roots = c.pool()
	return o, o.Roots != nil // nil would mean the system's authorities
}
