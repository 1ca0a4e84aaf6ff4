package criu

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// dumpConfig is CRIU's configuration file in a bundle. Package tasks names it in the specification of each container.
const dumpConfig = "criu.conf"

// restoreConfig is CRIU's configuration file of a restore. CRIU reads the one in the specification twice, and would
// replace each standard file twice.
const restoreConfig = "criu-restore.conf"

// stdioFile is the file in a checkpoint with CRIU's names of the three standard files; empty for a file that is not
// external.
const stdioFile = "stdio.json"

// DeclareStdio tells CRIU which standard files of a process are external, and writes their names into a checkpoint.
func DeclareStdio(bundle string, pid int, checkpoint string) error {
	var names [3]string
	var config strings.Builder
	for fd := range names {
		name, err := externalName(pid, fd)
		if err != nil {
			return fmt.Errorf("find file %d of process %d: %w", fd, pid, err)
		}
		if names[fd] = name; name != "" {
			fmt.Fprintf(&config, "external %s\n", name)
		}
	}
	text, err := json.Marshal(names)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(checkpoint, stdioFile), text, 0o600),
		os.WriteFile(filepath.Join(bundle, dumpConfig), []byte(config.String()), 0o600))
}

// ReplaceStdio tells CRIU to use runc's standard files in place of the external ones of a checkpoint.
func ReplaceStdio(bundle, checkpoint string) error {
	text, err := os.ReadFile(filepath.Join(checkpoint, stdioFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil // written by another shim, which gives pipes to containers: runc replaces these
	}
	var names [3]string
	if err == nil {
		err = json.Unmarshal(text, &names)
	}
	if err != nil {
		return fmt.Errorf("read the standard files of the checkpoint: %w", err)
	}
	var config strings.Builder
	for fd, name := range names {
		if strings.ContainsAny(name, " \t\n#\"\\") {
			return fmt.Errorf("read the standard files of the checkpoint: %q is no name of a file", name)
		}
		if name != "" {
			fmt.Fprintf(&config, "inherit-fd fd[%d]:%s\n", fd, name)
		}
	}
	return os.WriteFile(filepath.Join(bundle, restoreConfig), []byte(config.String()), 0o600)
}

// environment is the variable that names a configuration file to CRIU, which runc starts with its own environment.
const environment = "CRIU_CONFIG_FILE"

// Lock is held while the OCI runtime runs CRIU, because CRIU's environment is the shim's.
type Lock struct{ sync.Mutex }

// WithRestoreConfig calls run, which starts the OCI runtime for a restore into a bundle.
func (l *Lock) WithRestoreConfig(bundle string, run func() error) error {
	l.Mutex.Lock()
	defer l.Unlock()
	if err := os.Setenv(environment, filepath.Join(bundle, restoreConfig)); err != nil {
		return err
	}
	err := run()
	return errors.Join(err, os.Unsetenv(environment))
}

// externalName returns CRIU's name of a FIFO that a process has open, or "" for another file.
func externalName(pid, fd int) (string, error) {
	var stat unix.Stat_t
	err := unix.Stat(fmt.Sprintf("/proc/%d/fd/%d", pid, fd), &stat)
	if errors.Is(err, unix.ENOENT) {
		return "", nil // the process has closed it
	}
	if err != nil {
		return "", err
	}
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd))
	if err != nil {
		return "", err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFIFO || strings.HasPrefix(path, "pipe:") {
		return "", nil
	}
	info, err := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%d", pid, fd))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(info)) {
		var mount int
		if n, _ := fmt.Sscanf(line, "mnt_id: %d", &mount); n == 1 {
			return fmt.Sprintf("file[%x:%x]", mount, stat.Ino), nil
		}
	}
	return "", errors.New("the kernel does not tell its mount")
}

// Error adds the reasons in CRIU's log to an error of the OCI runtime, which only names that file. It returns nil for
// nil.
func Error(log string, err error) error {
	if err == nil {
		return nil
	}
	f, failed := os.Open(log)
	if failed != nil {
		return err // CRIU was not started
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	var reasons []string
	for lines.Scan() {
		if reason, ok := reasonIn(lines.Text()); ok {
			reasons = append(reasons, reason)
		}
	}
	reasons = reasons[max(0, len(reasons)-maxReasons):]
	if len(reasons) == 0 {
		return err
	}
	return fmt.Errorf("%w: CRIU says: %s", err, strings.Join(reasons, "; "))
}

// maxReasons limits how many lines of CRIU's log are quoted. The first ones are often about features of the kernel that
// CRIU can do without.
const maxReasons = 5

// reasonIn returns the text of a line with an error in CRIU's log, such as "(00.012345) Error (criu/sk-inet.c:188):
// inet: Connected TCP socket, consider using --tcp-established option.".
func reasonIn(line string) (text string, ok bool) {
	_, found, ok := strings.Cut(line, "Error (")
	if !ok {
		return "", false
	}
	_, text, ok = strings.Cut(found, "): ")
	return strings.TrimSpace(text), ok
}
