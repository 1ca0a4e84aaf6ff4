package flexvolume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/berth-run/berth/internal/base/program"
)

// callTimeout bounds one call of a driver. attachTimeout bounds the wait for a device, which the kubelet waits for as
// long.
const (
	callTimeout   = 2 * time.Minute
	attachTimeout = 10 * time.Minute
)

// drivers are the drivers that have answered init.
type drivers struct {
	dir string

	mu    sync.Mutex
	known map[string]*driver // by name
}

// driver is one version of a driver.
type driver struct {
	name, path string
	file       os.FileInfo
	can        capabilities

	mu          sync.Mutex
	unsupported map[string]bool // calls that the driver does not implement
}

// missing is the error for a driver without an executable.
type missing struct{ name, path string }

func (e *missing) Error() string {
	return fmt.Sprintf("FlexVolume driver %s is not installed: there is no executable %s; next: install it", e.name,
		e.path)
}

// get returns a driver. It calls init if the executable is new or has changed.
func (d *drivers) get(ctx context.Context, name string) (*driver, error) {
	if err := checkDriver(name); err != nil {
		return nil, err
	}
	path := filepath.Join(d.dir, dirOf(name), name[strings.LastIndex(name, "/")+1:])
	file, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &missing{name, path}
	}
	if err != nil {
		return nil, fmt.Errorf("find FlexVolume driver %s: %w", name, err)
	}
	if known := d.cached(name); known != nil && os.SameFile(known.file, file) &&
		known.file.ModTime().Equal(file.ModTime()) && known.file.Size() == file.Size() {
		return known, nil
	}
	found := &driver{name: name, path: path, file: file, unsupported: map[string]bool{}}
	a, err := found.call(ctx, "init")
	if err != nil {
		return nil, err
	}
	found.can = *a.Capabilities
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.known == nil {
		d.known = map[string]*driver{}
	}
	d.known[name] = found
	return found, nil
}

// cached returns the driver as it was at the last get, or nil.
func (d *drivers) cached(name string) *driver {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.known[name]
}

// call calls the driver and returns its answer. The error wraps errUnsupported if the driver does not implement the
// call. A call that was unsupported once is not repeated.
func (d *driver) call(ctx context.Context, method string, args ...string) (answer, error) {
	d.mu.Lock()
	unsupported := d.unsupported[method]
	d.mu.Unlock()
	if unsupported {
		return answer{}, fmt.Errorf("%s of FlexVolume driver %s: %w", method, d.name, errUnsupported)
	}
	limit := callTimeout
	if method == "waitforattach" {
		limit = attachTimeout
	}
	out, failed := program.Run(ctx, limit, d.path, append([]string{method}, args...)...)
	text := out.Stdout
	if len(text) == 0 {
		text = out.Stderr
	}
	a, err := parse(text)
	switch {
	case errors.Is(err, errUnsupported):
		d.mu.Lock()
		d.unsupported[method] = true
		d.mu.Unlock()
	case failed != nil && (err == nil || a.Status == ""):
		err = failed // the driver has not said why
		if text := strings.TrimSpace(string(out.Stderr)); text != "" {
			err = fmt.Errorf("%w: %.500s", failed, text)
		}
	}
	if err != nil {
		return a, fmt.Errorf("%s of FlexVolume driver %s: %w", method, d.name, err)
	}
	return a, nil
}
