package config

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubelet/config/v1beta1"
)

// maxSocketPath is the size of sun_path without its final zero (unix(7)).
const maxSocketPath = 107

// input holds what a Config is made from, and collects the errors found on the way. Its methods check single values.
// The functions that read a part of the Config take it as their argument.
type input struct {
	// kc has all defaults, files only the fields that the files set.
	kc, files *v1beta1.KubeletConfiguration
	errs      field.ErrorList
}

func (in *input) invalid(path string, value any, format string, args ...any) {
	in.errs = append(in.errs, field.Invalid(field.NewPath(path), value, fmt.Sprintf(format, args...)))
}

func (in *input) add(errs field.ErrorList) { in.errs = append(in.errs, errs...) }

// rules adds the messages of a validation rule of k8s.io/apimachinery.
func (in *input) rules(path string, value any, messages []string) {
	for _, m := range messages {
		in.invalid(path, value, "%s", m)
	}
}

func (in *input) within(path string, value, low, high int64) {
	if value < low || value > high {
		in.invalid(path, value, "must be between %d and %d", low, high)
	}
}

func (in *input) duration(path string, d metav1.Duration) time.Duration {
	if d.Duration < 0 {
		in.invalid(path, d.Duration.String(), "must be more than 0s; leave it out for the default")
	}
	return d.Duration
}

func (in *input) absolute(path, value string) {
	if value != "" && !filepath.IsAbs(value) {
		in.invalid(path, value, "must be an absolute path")
	}
}

// socket requires unix:///path, short enough for the kernel.
func (in *input) socket(path, value string) {
	file := in.address(path, value)
	if len(file) > maxSocketPath {
		in.invalid(path, file, "must be at most %d bytes long, is %d: choose a shorter path", maxSocketPath, len(file))
	}
}

// address requires unix:///path, and returns the path.
func (in *input) address(path, value string) string {
	file, ok := strings.CutPrefix(value, "unix://")
	if !ok || !filepath.IsAbs(file) {
		in.invalid(path, value, "must be unix:// and an absolute path, such as unix:///run/containerd/containerd.sock")
		return ""
	}
	return file
}

// oneOf checks a policy's name.
func (in *input) oneOf(path, value string, known ...string) string {
	if !slices.Contains(known, value) {
		in.add(field.ErrorList{field.NotSupported(field.NewPath(path), value, known)})
	}
	return value
}

func (in *input) ip(path, text string) netip.Addr {
	ip, err := netip.ParseAddr(text)
	if err != nil {
		in.invalid(path, text, "must be an IP address")
	}
	return ip.Unmap()
}

// port returns an invalid address for port 0.
func (in *input) port(path string, ip netip.Addr, port int32) netip.AddrPort {
	if port < 0 || port > 65535 {
		in.invalid(path, port, "must be between 1 and 65535")
	}
	if port <= 0 || port > 65535 {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(ip, uint16(port))
}
