package stream

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

// Port resolves a port argument to LOCAL:REMOTE, both numbers.
func Port(p *corev1.Pod, spec string) (string, error) {
	local, remote, two := strings.Cut(spec, ":")
	if !two {
		local, remote = "", spec
	}
	number, err := portNumber(p, remote)
	switch {
	case err != nil:
		return "", fmt.Errorf("port %q: %w", spec, err)
	case !two:
		local = strconv.Itoa(number)
	case local == "":
		local = "0"
	}
	if n, err := strconv.ParseUint(local, 10, 16); err != nil {
		return "", fmt.Errorf("port %q: the local port is not a number up to 65535", spec)
	} else if n == 0 && !two {
		return "", fmt.Errorf("port %q: it is 0", spec)
	}
	return local + ":" + strconv.Itoa(number), nil
}

// portNumber returns the number of a port. text is the number, or the name of a container's port.
func portNumber(p *corev1.Pod, text string) (int, error) {
	if n, err := strconv.Atoi(text); err == nil {
		if n < 1 || n > 65535 {
			return 0, errors.New("it is not between 1 and 65535")
		}
		return n, nil
	}
	var names []string
	for _, c := range pod.Containers(p) {
		for _, port := range c.Ports {
			if port.Name == text {
				return int(port.ContainerPort), nil
			}
			if port.Name != "" {
				names = append(names, port.Name)
			}
		}
	}
	if len(names) == 0 {
		return 0, fmt.Errorf("pod %s names no ports", pod.FullName(p))
	}
	return 0, fmt.Errorf("pod %s has no port of that name; it has %s", pod.FullName(p), strings.Join(names, ", "))
}
