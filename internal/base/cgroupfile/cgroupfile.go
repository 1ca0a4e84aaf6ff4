package cgroupfile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// Group is one cgroup.
type Group struct {
	// Unified says that this is version 2.
	Unified bool
	// Dirs are its directories by controller; on version 2 there is one, "".
	Dirs map[string]string
}

// Subject is a cgroup that is watched for changes from outside.
type Subject struct {
	// Level is what it is for: node, qos, pod or container.
	Level string
	Group Group
	// Ref is what an event is about.
	Ref corev1.ObjectReference
	// Differs reads back what does not say what it should.
	Differs func(context.Context) ([]Change, error)
	// Repair makes it so again.
	Repair func(context.Context, []Change) error
	// Gone is called once when the cgroup is not there any more. nil: it goes by itself.
	Gone func(context.Context)
}

// Dir is where the files of a controller are. It says false where the host has
// no such controller.
func (g Group) Dir(controller string) (string, bool) {
	if g.Unified {
		controller = ""
	}
	dir, ok := g.Dirs[controller]
	return dir, ok
}

// Watched are the directories that hold files of Values, each once: with version
// 1 two controllers may have the same.
func (g Group) Watched() []string {
	var dirs []string
	for _, c := range controllers() {
		if dir, ok := g.Dir(c); ok && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// Exists says that none of the watched directories is missing.
func (g Group) Exists() bool {
	for _, dir := range g.Watched() {
		if unix.Access(dir, unix.F_OK) != nil {
			return false
		}
	}
	return true
}

// Present is the group without the directories that are not there.
func (g Group) Present() Group {
	have := Group{Unified: g.Unified, Dirs: map[string]string{}}
	for c, dir := range g.Dirs {
		if unix.Access(dir, unix.F_OK) == nil {
			have.Dirs[c] = dir
		}
	}
	return have
}

// Child finds the cgroup of a container below that of its pod: a runtime makes
// the container's id part of the name, as in cri-containerd-ID.scope.
func (g Group) Child(id string) (Group, bool) {
	child := Group{Unified: g.Unified, Dirs: map[string]string{}}
	name := ""
	for c, dir := range g.Dirs {
		if name == "" {
			if name = childName(dir, id); name == "" {
				continue
			}
		}
		at := filepath.Join(dir, name)
		if unix.Access(at, unix.F_OK) == nil {
			child.Dirs[c] = at
		}
	}
	return child, name != ""
}

// childName tries the names that containerd uses before it looks for others.
func childName(dir, id string) string {
	for _, name := range []string{id, "cri-containerd-" + id + ".scope"} {
		if unix.Access(filepath.Join(dir, name), unix.F_OK) == nil {
			return name
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return ""
	}
	for _, e := range entries {
		if e.IsDir() && strings.Contains(e.Name(), id) {
			return e.Name()
		}
	}
	return ""
}

// Read reads those files that want names. One that is not there is left out: the
// host has no such controller.
func Read(g Group, want Values) (Values, error) {
	have := Values{}
	for file := range want {
		dir, ok := g.Dir(Controller(file))
		if !ok {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read back %s: %w", filepath.Join(dir, file), err)
		}
		have[file] = Canonical(file, string(text))
	}
	return have, nil
}

// Write sets one file.
func Write(g Group, file, value string) error {
	dir, ok := g.Dir(Controller(file))
	if !ok {
		return fmt.Errorf("set %s: the host lacks the controller", file)
	}
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(Spell(g.Unified, value))
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("set %s to %s: %w", filepath.Join(dir, file), value, err)
	}
	return nil
}
