package podlog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// Default directories of logs, the same as in the kubelet.
const (
	DefaultDir       = "/var/log/pods" // KubeletConfiguration podLogsDir
	DefaultLegacyDir = "/var/log/containers"
)

// maxName is the longest file name on Linux file systems, in bytes (NAME_MAX).
const maxName = 255

// PodDir returns a pod's log directory below root, which is the log_directory of CRI's PodSandboxConfig.
func PodDir(root, namespace, name string, uid types.UID) string {
	return filepath.Join(root, namespace+"_"+name+"_"+string(uid))
}

// File returns the log file of a container's n-th instance (the first is 0), relative to its pod's directory. It is the
// log_path of CRI's ContainerConfig.
func File(container string, n int) string {
	return filepath.Join(container, strconv.Itoa(n)+".log")
}

// LegacyLink returns the symbolic link in dir through which cluster-level log collectors find a container's log and its
// metadata. A name that is too long loses the end of its container id.
func LegacyLink(dir, namespace, pod, container, id string) string {
	const suffix = ".log"
	name := fmt.Sprintf("%s_%s_%s-%s", pod, namespace, container, id)
	return filepath.Join(dir, name[:min(len(name), maxName-len(suffix))]+suffix)
}

// LastInstance returns the highest instance that has a log in a container's log directory, including rotated logs. It
// replaces the restart count if no status has one. found is false if there is no log.
func LastInstance(containerDir string) (n int, found bool, err error) {
	entries, err := os.ReadDir(containerDir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("read log directory: %w", err)
	}
	for _, e := range entries {
		if i, ok := instance(e.Name()); ok {
			n, found = max(n, i), true
		}
	}
	return n, found, nil
}

// instance returns the instance in a log file's name: "2.log", "2.log.20260301-120000.gz".
func instance(name string) (int, bool) {
	digits, rest, ok := strings.Cut(name, ".log")
	if !ok || rest != "" && !strings.HasPrefix(rest, ".") {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 31)
	return int(n), err == nil
}

// LinkDir returns the directory of the links for log collectors. It is "" unless the logs are in the default directory,
// where collectors expect them.
func LinkDir(logsDir string) string {
	if logsDir == DefaultDir {
		return DefaultLegacyDir
	}
	return ""
}
