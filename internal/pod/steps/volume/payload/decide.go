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

// defaultMode is the mode of a file if neither its item nor its volume sets a mode.
const defaultMode = 0o644

// Mode returns the first mode that is set, or else 0644.
func Mode(modes ...*int32) int32 {
	for _, mode := range modes {
		if mode != nil {
			return *mode
		}
	}
	return defaultMode
}

// Lacks has an error for each object and key that a volume still needs.
type Lacks []error

func (l Lacks) Error() string {
	texts := make([]string, len(l))
	for i, err := range l {
		texts[i] = err.Error()
	}
	return strings.Join(texts, ", ")
}

// Unwrap lets package object find the objects to wait for.
func (l Lacks) Unwrap() []error { return l }

// Unavailable is the error for content that is temporarily unavailable, such as a token while the API server is
// unreachable. Earlier files stay in use meanwhile.
type Unavailable struct{ Err error }

func (e *Unavailable) Error() string { return e.Err.Error() }

func (e *Unavailable) Unwrap() error { return e.Err }

// Err returns nil if nothing is missing.
func (l Lacks) Err() error {
	switch len(l) {
	case 0:
		return nil
	case 1:
		return l[0]
	}
	return l
}

// Reference names an object and the keys that become files.
type Reference struct {
	Name string
	// Items are the keys with their paths; empty: all keys, each with its own name as path.
	Items []corev1.KeyToPath
	// Optional: the object and the keys may be missing.
	Optional *bool
}

// IsOptional is false by default.
func (r Reference) IsOptional() bool { return r.Optional != nil && *r.Optional }

// Files makes files from an object's data, which may be nil for an optional object. mode is for items without one. A
// missing key is an *object.Lacking; its text is missingKey, a format with the key as its argument.
func (r Reference) Files(o object.Key, data map[string][]byte, mode int32, missingKey string) (Files, error) {
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
			lacks = append(lacks, &object.Lacking{Key: o, Err: fmt.Errorf(missingKey, item.Key)})
		}
	}
	return files, lacks.Err()
}

// Limits of a path (limits.h: PATH_MAX, NAME_MAX).
const (
	maxPath = 4096
	maxName = 255
)

// CheckPath returns the path of a file in a volume in its shortest form. The path must be relative and must not climb.
// Its first name must not begin with "..", which is reserved for the names in this package.
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
			return nil, fmt.Errorf("path %q is both a file and a directory", dir)
		}
	}
	return clean, nil
}

// directories returns the directories that contain files, each parent before its children.
func directories(files Files) []string {
	all := map[string]bool{}
	for p := range files {
		for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
			all[dir] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// deepest leaves out the directories that come right before one of their children: whoever makes the child makes them
// too. Without it, the steps to make a path of n directories grow with the square of n.
func deepest(sorted []string) []string {
	var all []string
	for i, dir := range sorted {
		if i+1 == len(sorted) || !strings.HasPrefix(sorted[i+1], dir+"/") {
			all = append(all, dir)
		}
	}
	return all
}

// topNames returns the first name of each path: the names that a container sees in the volume's directory. The value is
// a file below the name; its user owns the link.
func topNames(files Files) map[string]File {
	names := map[string]File{}
	for _, p := range slices.Sorted(maps.Keys(files)) {
		name, _, _ := strings.Cut(p, "/")
		names[name] = files[p]
	}
	return names
}

// owner is the group of a volume's files (pod.spec.securityContext.fsGroup). With a group, it may read all files, and
// new entries of the directories belong to it.
type owner struct{ group *int64 }

// groupOf returns the pod's fsGroup.
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

// Mode bits that a group needs to read.
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

// Names that are reserved in the volume's directory.
const (
	dataLink = "..data"
	newLink  = "..data_tmp"
	// versionLayout is the beginning of a version's name; digits follow.
	versionLayout = "..2006_01_02_15_04_05."
)

// grace is how long a version is kept after it was replaced.
const grace = time.Second

// versionName is the name of a version made now. others is the number of names that are already in use for this time.
func versionName(now time.Time, others int) string {
	now = now.UTC().Add(time.Duration(others))
	return fmt.Sprintf("%s%09d", now.Format(versionLayout), now.Nanosecond())
}

// versionTime returns when a version was made. Nine digits after the seconds are nanoseconds. A kubelet's digits are
// random.
func versionTime(name string) (at time.Time, ok bool) {
	if len(name) <= len(versionLayout) || strings.Trim(name[len(versionLayout):], "0123456789") != "" {
		return at, false
	}
	at, err := time.Parse(versionLayout, name[:len(versionLayout)])
	if digits := name[len(versionLayout):]; len(digits) == 9 {
		n, _ := strconv.Atoi(digits) // the trim above left only digits
		at = at.Add(time.Duration(n))
	}
	return at, err == nil
}

// stale returns the names to remove from a volume: versions that were replaced at least grace ago or never finished,
// and the temporary link of an interrupted write.
func stale(names []string, current string, now time.Time) []string {
	var all []string
	for _, name := range names {
		made, version := versionTime(name)
		age := now.Sub(made).Abs() // a version from the future: the clock was set back
		if name == newLink || version && name != current && age >= grace {
			all = append(all, name)
		}
	}
	return all
}

// nested returns the paths in a volume where containers mount other volumes. These directories must exist, because the
// runtime finds the volume read-only.
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
					continue // outside the volume, or inside another mount
				}
				mine = append(mine, rel)
			}
			all = append(all, mine...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}
