package fault

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxSocketPath is the size of sun_path without its final zero (unix(7)).
const maxSocketPath = 107

// List collects errors. Its zero value is empty. Each method checks one value, and path is the value's field or flag.
type List struct{ errs field.ErrorList }

// All returns the errors in the order in which they were found.
func (l *List) All() field.ErrorList { return l.errs }

// Invalid adds an error about a value.
func (l *List) Invalid(path string, value any, format string, args ...any) {
	l.errs = append(l.errs, field.Invalid(field.NewPath(path), value, fmt.Sprintf(format, args...)))
}

// Add adds errors.
func (l *List) Add(errs field.ErrorList) { l.errs = append(l.errs, errs...) }

// Rules adds the messages of a validation rule of k8s.io/apimachinery.
func (l *List) Rules(path string, value any, messages []string) {
	for _, m := range messages {
		l.Invalid(path, value, "%s", m)
	}
}

// Within requires low <= value <= high.
func (l *List) Within(path string, value, low, high int64) {
	if value < low || value > high {
		l.Invalid(path, value, "must be between %d and %d", low, high)
	}
}

// Duration requires a duration that is not negative, and returns it.
func (l *List) Duration(path string, d metav1.Duration) time.Duration {
	if d.Duration < 0 {
		l.Invalid(path, d.Duration.String(), "must be more than 0s; leave it out for the default")
	}
	return d.Duration
}

// Absolute requires an absolute path, or "".
func (l *List) Absolute(path, value string) {
	if value != "" && !filepath.IsAbs(value) {
		l.Invalid(path, value, "must be an absolute path")
	}
}

// Socket requires unix:///path, short enough for the kernel.
func (l *List) Socket(path, value string) {
	file := l.Address(path, value)
	if len(file) > maxSocketPath {
		l.Invalid(path, file, "must be at most %d bytes long, is %d: choose a shorter path", maxSocketPath, len(file))
	}
}

// Address requires unix:///path, and returns the path.
func (l *List) Address(path, value string) string {
	file, ok := strings.CutPrefix(value, "unix://")
	if !ok || !filepath.IsAbs(file) {
		l.Invalid(path, value, "must be unix:// and an absolute path, such as unix:///run/containerd/containerd.sock")
		return ""
	}
	return file
}

// OneOf checks a policy's name.
func (l *List) OneOf(path, value string, known ...string) string {
	if !slices.Contains(known, value) {
		l.Add(field.ErrorList{field.NotSupported(field.NewPath(path), value, known)})
	}
	return value
}

// IP requires an IP address, and returns it.
func (l *List) IP(path, text string) netip.Addr {
	ip, err := netip.ParseAddr(text)
	if err != nil {
		l.Invalid(path, text, "must be an IP address")
	}
	return ip.Unmap()
}

// Port requires a port, and returns it with its address. For port 0, which means none, the result is invalid.
func (l *List) Port(path string, ip netip.Addr, port int32) netip.AddrPort {
	if port < 0 || port > 65535 {
		l.Invalid(path, port, "must be between 1 and 65535")
	}
	if port <= 0 || port > 65535 {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(ip, uint16(port))
}
