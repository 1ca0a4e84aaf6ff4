package payload

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
)

// File is one file of a volume.
type File struct {
	Data []byte
	// Mode are permission bits, from 0 to 0o777.
	Mode int32
	// User owns the file; nil: root.
	User *int64
}

// Files are the files of a volume by their paths in it.
type Files map[string]File

// defaultMode is that of files of which nobody says another.
const defaultMode = 0o644

// Mode is the mode of a file: the first that is set, else 0644.
func Mode(asked ...*int32) int32 {
	for _, mode := range asked {
		if mode != nil {
			return *mode
		}
	}
	return defaultMode
}

// Lacks are the errors of all that is missing to make a volume.
type Lacks []error

func (l Lacks) Error() string {
	texts := make([]string, len(l))
	for i, err := range l {
		texts[i] = err.Error()
	}
	return strings.Join(texts, ", ")
}

// Unwrap has package object find what is waited for.
func (l Lacks) Unwrap() []error { return l }

// Later is the error of what cannot be had now, such as a token while the API
// server is away. Files that are there stay in use until it can.
type Later struct{ Err error }

func (e *Later) Error() string { return e.Err.Error() }

func (e *Later) Unwrap() error { return e.Err }

// Err is nil if nothing is missing.
func (l Lacks) Err() error {
	switch len(l) {
	case 0:
		return nil
	case 1:
		return l[0]
	}
	return l
}

// Reference names an object, and which of its keys are files.
type Reference struct {
	Name string
	// Items are the keys and their paths; empty: all keys, each by its own name.
	Items []corev1.KeyToPath
	// Optional: the object and the keys may be missing.
	Optional *bool
}

// IsOptional is false unless the reference says so.
func (r Reference) IsOptional() bool { return r.Optional != nil && *r.Optional }

// Files makes files of an object's data, which may be nil for an optional one.
// mode is that of files that have none of their own. A key that is missing is an
// *object.Lacking, with the format lacking for the key.
func (r Reference) Files(o object.Key, data map[string][]byte, mode int32, lacking string) (Files, error) {
	files := Files{}
	if len(r.Items) == 0 {
		for key, value := range data {
			files[key] = File{Data: value, Mode: mode}
		}
		return files, nil
	}
	var lacks Lacks
	for _, item := range r.Items {
		value, ok := data[item.Key]
		switch {
		case ok:
			files[item.Path] = File{Data: value, Mode: Mode(item.Mode, &mode)}
		case !r.IsOptional():
			lacks = append(lacks, &object.Lacking{Key: o, Err: fmt.Errorf(lacking, item.Key)})
		}
	}
	return files, lacks.Err()
}

// Bounds of a path (limits.h: PATH_MAX, NAME_MAX).
const (
	maxPath = 4096
	maxName = 255
)

// CheckPath returns the path of a file in a volume in its shortest form. It is
// relative, does not climb, and its first name does not begin with "..": those
// names are the volume's own.
func CheckPath(p string) (string, error) {
	switch {
	case p == "":
		return "", fmt.Errorf("the path of a file must not be empty")
	case path.IsAbs(p):
		return "", fmt.Errorf("path %q must be relative", p)
	case len(p) > maxPath:
		return "", fmt.Errorf("path %.40q... is longer than %d bytes", p, maxPath)
	case strings.Contains(p, "\x00"):
		return "", fmt.Errorf("path %q must not contain a zero byte", p)
	}
	for name := range strings.SplitSeq(p, "/") {
		if name == ".." {
			return "", fmt.Errorf("path %q must not contain '..'", p)
		}
		if len(name) > maxName {
			return "", fmt.Errorf("path %.40q... has a name of more than %d bytes", p, maxName)
		}
	}
	p = path.Clean(p)
	switch {
	case p == ".":
		return "", fmt.Errorf("path %q names no file", p)
	case strings.HasPrefix(p, ".."):
		return "", fmt.Errorf("path %q must not start with '..'", p)
	}
	return p, nil
}

// checked returns files with their paths in the shortest form.
func checked(files Files) (Files, error) {
	clean := make(Files, len(files))
	for p, f := range files {
		p, err := CheckPath(p)
		if err != nil {
			return nil, err
		}
		clean[p] = f
	}
	for _, dir := range directories(clean) {
		if _, ok := clean[dir]; ok {
			return nil, fmt.Errorf("path %q is to be both a file and a directory", dir)
		}
	}
	return clean, nil
}

// directories are those that the files are in, each after the one it is in.
func directories(files Files) []string {
	all := map[string]bool{}
	for p := range files {
		for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
			all[dir] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// visible are the names that a container sees in the volume: where its paths
// begin. Each has a file below it, which tells who owns the link.
func visible(files Files) map[string]File {
	names := map[string]File{}
	for _, p := range slices.Sorted(maps.Keys(files)) {
		name, _, _ := strings.Cut(p, "/")
		names[name] = files[p]
	}
	return names
}

// owner is who has the files besides their users: with a group, it may read all
// of them, and what is made in the directories is the group's
// (pod.spec.securityContext.fsGroup).
type owner struct{ group *int64 }

// groupOf is the pod's fsGroup.
func groupOf(p *corev1.Pod) owner {
	if s := p.Spec.SecurityContext; s != nil {
		return owner{s.FSGroup}
	}
	return owner{}
}

func (o owner) gid() int {
	if o.group == nil {
		return 0
	}
	return int(*o.group)
}

// The bits of chmod(1) that a group needs to read.
const (
	groupRead = 0o440
	groupDir  = 0o2110 | groupRead
)

func (o owner) fileMode(f File) uint32 {
	mode := uint32(f.Mode) & 0o777
	if o.group != nil {
		mode |= groupRead
	}
	return mode
}

func (o owner) dirMode() uint32 {
	if o.group != nil {
		return 0o755 | groupDir
	}
	return 0o755
}

// Names of the volume's own.
const (
	dataLink = "..data"
	newLink  = "..data_tmp"
	// versionLayout is the begin of a version's name; digits follow.
	versionLayout = "..2006_01_02_15_04_05."
)

// grace is how long a version that was replaced stays.
const grace = time.Second

// versionName is that of a version made now, after others with the same name.
func versionName(now time.Time, others int) string {
	now = now.UTC().Add(time.Duration(others))
	return fmt.Sprintf("%s%09d", now.Format(versionLayout), now.Nanosecond())
}

// versionTime says when a version was made. The digits after the seconds are
// nanoseconds if there are nine of them: the kubelet's are random.
func versionTime(name string) (at time.Time, ok bool) {
	if len(name) <= len(versionLayout) || strings.Trim(name[len(versionLayout):], "0123456789") != "" {
		return at, false
	}
	at, err := time.Parse(versionLayout, name[:len(versionLayout)])
	if digits := name[len(versionLayout):]; len(digits) == 9 {
		n, _ := strconv.Atoi(digits) // digits they are
		at = at.Add(time.Duration(n))
	}
	return at, err == nil
}

// stale are the names in a volume that are no longer of use: versions that were
// replaced some time ago, or never finished, and links that were to become
// another.
func stale(names []string, current string, now time.Time) []string {
	var all []string
	for _, name := range names {
		made, version := versionTime(name)
		age := now.Sub(made).Abs() // of tomorrow too: the clock was set back
		if name == newLink || version && name != current && age >= grace {
			all = append(all, name)
		}
	}
	return all
}

// nested are the places in a volume on which containers mount other volumes, as
// paths in the volume. They have to be there: the runtime finds the volume
// read-only.
func nested(p *corev1.Pod, volume string) ([]string, error) {
	var all []string
	for _, c := range pod.Containers(p) {
		points := make([]string, len(c.VolumeMounts))
		for i, m := range c.VolumeMounts {
			points[i] = path.Clean("/" + m.MountPath)
		}
		slices.SortFunc(points, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) })
		for _, m := range c.VolumeMounts {
			if m.Name != volume || m.SubPath != "" || m.SubPathExpr != "" {
				continue
			}
			var mine []string
			for _, point := range points {
				rel, err := filepath.Rel(path.Clean("/"+m.MountPath), point)
				if err != nil {
					return nil, err
				}
				if rel == "." || rel == ".." || strings.HasPrefix(rel, "../") ||
					slices.ContainsFunc(mine, func(outer string) bool { return strings.HasPrefix(rel, outer+"/") }) {
					continue // elsewhere, or in what is mounted here already
				}
				mine = append(mine, rel)
			}
			all = append(all, mine...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}
