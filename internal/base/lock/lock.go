package lock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrLocked is the error if another agent, or a runtime without an agent, works on the root directory.
var ErrLocked = errors.New("another agent or runtime works on this root directory")

// Advice is the next step of a user after ErrLocked.
const Advice = "stop that process, or choose another --root-dir"

// RootFile is the name of the lock file in a root directory.
const RootFile = "lock"

// ErrHeld is the error of Try if another process holds the lock.
var ErrHeld = errors.New("another process holds the lock")

// Try takes the lock of a file (flock(2)) without waiting. It creates the file if there is none. The kernel releases
// the lock when the process ends, and the caller by closing the file.
//
// The holder may delete the file while it holds the lock. Then a process that had opened the deleted file locks the
// next one.
func Try(path string) (*os.File, error) {
	for {
		f, err := open(path)
		if err != nil {
			return nil, err
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		for errors.Is(err, unix.EINTR) {
			err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		}
		if err != nil {
			if errors.Is(err, unix.EWOULDBLOCK) {
				err = ErrHeld
			}
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		current, err := names(path, f)
		if current {
			return f, nil
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
	}
}

// open opens a lock file that no other user can lock, and creates it if there is none. Whoever may open a file may lock
// it, for ever. So a file of another user is refused, and the permissions of other users are removed.
func open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock file: %w", err)
	}
	var st unix.Stat_t
	if err = unix.Fstat(int(f.Fd()), &st); err == nil {
		err = private(st, os.Geteuid())
	}
	if err == nil && st.Mode&0o077 != 0 {
		err = f.Chmod(0o600)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open lock file %s: %w", path, err), f.Close())
	}
	return f, nil
}

// private returns an error if a file cannot be a lock file of the user uid.
func private(st unix.Stat_t, uid int) error {
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink > 1:
		return errors.New("it is not a regular file with one name; remove it")
	case int(st.Uid) != uid:
		return fmt.Errorf("it belongs to user %d, who could hold the lock for ever; remove it", st.Uid)
	}
	return nil
}

// names reports whether a path still leads to an open file.
func names(path string, f *os.File) (bool, error) {
	opened, err := f.Stat()
	if err != nil {
		return false, err
	}
	now, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(opened, now), err
}

// Root takes the lock of a root directory, so that only one agent at a time works on it. The kernel releases the lock
// when the process ends. The error is ctx's if ctx ends while Root waits.
//
// Root waits for a command that holds the lock (Command), since commands end soon.
func Root(ctx context.Context, root string) (unlock func() error, err error) {
	return take(ctx, root, strconv.Itoa(os.Getpid())+"\n")
}

// Command is Root for a command that works on the root directory without an agent.
func Command(ctx context.Context, root string) (unlock func() error, err error) {
	return take(ctx, root, strconv.Itoa(os.Getpid())+" "+command+"\n")
}

// command follows the process ID in the lock file of a command.
const command = "command"

// take takes the lock of a root directory and writes text into the lock file.
func take(ctx context.Context, root, text string) (unlock func() error, err error) {
	path := filepath.Join(root, RootFile)
	began := time.Now()
	f, err := tryWhile(ctx, path, func() bool { return time.Since(began) < patience(holder(path)) })
	if errors.Is(err, ErrHeld) {
		pid, _ := holder(path)
		return nil, fmt.Errorf("lock %s: %w (pid %s)", path, ErrLocked, cmp.Or(pid, "unknown"))
	}
	if err != nil {
		return nil, err
	}
	if err := errors.Join(f.Truncate(0), writeAt(f, text)); err != nil {
		return nil, errors.Join(fmt.Errorf("write %s: %w", path, err), f.Close())
	}
	return f.Close, nil
}

// inherited is how long Root waits for the lock of an agent that has died. A process that the agent was about to start
// has a copy of the lock until it runs its program. On a busy machine this takes a while.
const inherited = 15 * time.Second

// commandPatience is how long Root waits for a command. Loading a large image takes the longest.
const commandPatience = 2 * time.Minute

// patience returns how long to wait for the holder of a lock.
func patience(pid, kind string) time.Duration {
	switch {
	case kind == command:
		return commandPatience
	case dead(pid):
		return inherited
	}
	return 0
}

// holder returns the process ID in a lock file, and the kind of a holder that is no agent. Both are "" if unknown.
func holder(path string) (pid, kind string) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", ""
	}
	pid, kind, _ = strings.Cut(strings.TrimSpace(string(text)), " ")
	return pid, kind
}

// dead reports whether there is no process with this ID.
func dead(pid string) bool {
	n, err := strconv.Atoi(pid)
	return err == nil && n > 0 && errors.Is(unix.Kill(n, 0), unix.ESRCH)
}

func writeAt(f *os.File, text string) error {
	_, err := f.WriteAt([]byte(text), 0)
	return err
}
