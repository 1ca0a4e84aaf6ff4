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
	// Unified: the cgroup is of version 2.
	Unified bool
	// Dirs are its directories by controller. Version 2 has one directory, with the key "".
	Dirs map[string]string
}

// Subject is a cgroup that is checked for changes from outside.
type Subject struct {
	// Level is the level of the cgroup: node, qos, pod or container.
	Level string
	Group Group
	// Ref is the object that events about the cgroup name.
	Ref corev1.ObjectReference
	// Differs reads the files and returns those with another value than expected.
	Differs func(context.Context) ([]Change, error)
	// Repair writes the expected values of these files.
	Repair func(context.Context, []Change) error
	// Gone is called once when the cgroup no longer exists. nil: nothing needs to know.
	Gone func(context.Context)
}

// Dir is the directory with the files of a controller. ok is false if the host does not have the controller.
func (g Group) Dir(controller string) (path string, ok bool) {
	if g.Unified {
		controller = ""
	}
	dir, ok := g.Dirs[controller]
	return dir, ok
}

// Watched returns the directories with files of Values, each once. With version 1, two controllers may share a
// directory.
func (g Group) Watched() []string {
	var dirs []string
	for _, c := range controllers() {
		if dir, ok := g.Dir(c); ok && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// Exists reports whether all watched directories exist.
func (g Group) Exists() bool {
	for _, dir := range g.Watched() {
		if unix.Access(dir, unix.F_OK) != nil {
			return false
		}
	}
	return true
}

// Present is the group with only those directories that exist.
func (g Group) Present() Group {
	present := Group{Unified: g.Unified, Dirs: map[string]string{}}
	for c, dir := range g.Dirs {
		if unix.Access(dir, unix.F_OK) == nil {
			present.Dirs[c] = dir
		}
	}
	return present
}

// Child finds the cgroup of a container below its pod's. The container's id is part of its name, as in
// cri-containerd-ID.scope.
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

// childName tries the names that containerd uses before it lists the directory.
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

// Read reads the files that want names. It skips files that do not exist because the host does not have the controller.
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

// Write writes a value to one file.
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
