package machinetest

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing/fstest"

	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/node/machine"
)

// Pack records the files below root that machine.Read reads.
func Pack(root fs.FS) ([]byte, error) {
	seen := recorder{FS: root, files: map[string]string{}}
	if _, err := machine.Read(seen); err != nil {
		return nil, err
	}
	type kind struct{ before, after, content string }
	folded := map[kind][]int{}
	for name, content := range seen.files {
		k := kind{content: content}
		if parts := numbered.FindStringSubmatch(name); parts != nil {
			id, err := strconv.Atoi(parts[2])
			if err != nil {
				return nil, fmt.Errorf("pack %s: %w", name, err)
			}
			k.before, k.after = parts[1], parts[3]
			folded[k] = append(folded[k], id)
			continue
		}
		k.before = name
		folded[k] = nil
	}
	var out bytes.Buffer
	for _, k := range slices.SortedFunc(maps.Keys(folded), func(a, b kind) int {
		return strings.Compare(a.before+a.after, b.before+b.after)*4 + cmpFirst(folded[a], folded[b])
	}) {
		name := k.before
		if ids := folded[k]; ids != nil {
			name += "{" + cpuset.New(ids...).String() + "}" + k.after
		}
		fmt.Fprintf(&out, "%s: %s\n", name, k.content)
	}
	return out.Bytes(), nil
}

func cmpFirst(a, b []int) int {
	if len(a) == 0 || len(b) == 0 {
		return 0
	}
	return min(max(slices.Min(a)-slices.Min(b), -1), 1)
}

// numbered matches a file of one CPU or node.
var numbered = regexp.MustCompile(`^(sys/devices/system/(?:cpu/cpu|node/node))(\d+)(/.*)$`)

// recorder records the files that are read.
type recorder struct {
	fs.FS
	files map[string]string
}

func (r recorder) ReadFile(name string) ([]byte, error) {
	data, err := fs.ReadFile(r.FS, name)
	if err != nil {
		return nil, err
	}
	text, _, _ := strings.Cut(string(data), "\x00")
	text = strings.TrimSpace(text)
	switch path.Base(name) {
	case "meminfo":
		text = line(text, "MemTotal:")
	case "cpuinfo":
		text = line(text, "processor")
	}
	r.files[name] = text
	return data, nil
}

func line(text, word string) string {
	for l := range strings.Lines(text) {
		if strings.Contains(l, word) {
			return strings.TrimSpace(l)
		}
	}
	return ""
}

// Unpack returns the file system that Pack recorded.
func Unpack(packed []byte) (fs.FS, error) {
	files := fstest.MapFS{}
	for l := range strings.Lines(string(packed)) {
		name, content, found := strings.Cut(strings.TrimSpace(l), ":")
		if !found {
			return nil, fmt.Errorf("unpack line %q: no colon", l)
		}
		file := &fstest.MapFile{Data: []byte(strings.TrimSpace(content) + "\n"), Mode: 0o444}
		before, rest, folded := strings.Cut(name, "{")
		if !folded {
			files[name] = file
			continue
		}
		list, after, _ := strings.Cut(rest, "}")
		ids, err := cpuset.Parse(list)
		if err != nil {
			return nil, fmt.Errorf("unpack line %q: %w", l, err)
		}
		for _, id := range ids.UnsortedList() {
			files[before+strconv.Itoa(id)+after] = file
		}
	}
	return files, nil
}
