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

// lookAgain is how long a look at the client CA file counts: certificates come
// with requests, so nothing needs to look while none do.
const lookAgain = time.Second

// clientCAs are the authorities in a file, which may be replaced at any time.
type clientCAs struct {
	file string
	log  *slog.Logger

	mu     sync.Mutex
	looked time.Time
	seen   version
	known  *x509.CertPool
}

// version tells two contents of a file apart.
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

// read looks at the file and takes its content when it is another. A file that
// cannot be read leaves what is known.
func (c *clientCAs) read(now time.Time) error {
	c.looked = now
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
	if c.known != nil {
		c.log.Info("client CA file was replaced", "file", c.file)
	}
	c.known, c.seen = pool, version{is.ModTime(), is.Size(), is}
	return nil
}

// pool are the authorities as of now, or nil when none were ever read.
func (c *clientCAs) pool() *x509.CertPool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.looked) >= lookAgain {
		if err := c.read(now); err != nil {
			c.log.Warn("client certificates are checked with the authorities of before", "error", err)
		}
	}
	return c.known
}

func (c *clientCAs) verifyOptions() (x509.VerifyOptions, bool) {
	o := requestx509.DefaultVerifyOptions()
	o.Roots = c.pool()
	return o, o.Roots != nil // nil would mean the system's
}
