package csi

import (
	"fmt"

	"github.com/opencontainers/selinux/go-selinux"
	"github.com/opencontainers/selinux/go-selinux/label"
	corev1 "k8s.io/api/core/v1"
)

// FileLabel returns a function that finds the SELinux label of a container's files. The host's default for containers
// fills in what the options leave out. It returns nil on a host without SELinux.
func FileLabel() func(*corev1.SELinuxOptions) (string, error) {
	if !selinux.GetEnabled() {
		return nil
	}
	return func(o *corev1.SELinuxOptions) (string, error) {
		var options []string
		for _, part := range [...][2]string{{"user", o.User}, {"role", o.Role}, {"type", o.Type}, {"level", o.Level}} {
			if part[1] != "" {
				options = append(options, part[0]+":"+part[1])
			}
		}
		process, file, err := label.InitLabels(options)
		if err != nil {
			return "", fmt.Errorf("find the SELinux label for %+v: %w", *o, err)
		}
		selinux.ReleaseLabel(process) // the runtime chooses its own
		return file, nil
	}
}
