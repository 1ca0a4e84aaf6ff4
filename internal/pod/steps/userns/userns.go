package userns

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync"

	"github.com/moby/sys/user"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/base/safepath"
)

// Config of Namespaces.
type Config struct {
	// Root is the agent's directory; pods are in <Root>/pods.
	Root string
	// IDsPerPod is userNamespaces.idsPerPod, a multiple of Unit. Default Unit.
	IDsPerPod uint32
	// SubUID and SubGID are the paths of subuid(5) and subgid(5). The defaults are /etc/subuid and /etc/subgid. A
	// missing file gives no ids to any user.
	SubUID, SubGID string
}

// Namespaces gives each pod a range of ids.
type Namespaces struct {
	cfg Config
	mu  sync.Mutex // one choice at a time
}

// New makes a Namespaces. It does no I/O.
func New(c Config) *Namespaces {
	if c.IDsPerPod == 0 {
		c.IDsPerPod = Unit
	}
	if c.SubUID == "" {
		c.SubUID = "/etc/subuid"
	}
	if c.SubGID == "" {
		c.SubGID = "/etc/subgid"
	}
	return &Namespaces{cfg: c}
}

// Wanted reports whether a pod asks for its own user namespace.
func Wanted(p *corev1.Pod) bool { return p.Spec.HostUsers != nil && !*p.Spec.HostUsers }

// Mapping returns the pod's user namespace: the one that it has, or else a new one. It returns nil for a pod in the
// host's user namespace. The pod's directory must exist.
func (n *Namespaces) Mapping(p *corev1.Pod) (*runtimeapi.UserNamespace, error) {
	if !Wanted(p) {
		return nil, nil
	}
	r, err := n.rangeOf(p.UID)
	if err != nil {
		return nil, fmt.Errorf("give the pod a user namespace: %w", err)
	}
	return r.mapping(), nil
}

func (n *Namespaces) rangeOf(uid types.UID) (Range, error) {
	if err := safepath.Name(string(uid)); err != nil {
		return Range{}, fmt.Errorf("use the pod's UID: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	file := n.file(string(uid))
	r, err := read(file)
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return r, err
	}
	uids, err := grants(n.cfg.SubUID)
	if err != nil {
		return Range{}, err
	}
	gids, err := grants(n.cfg.SubGID)
	if err != nil {
		return Range{}, err
	}
	within, used, err := delegated(uids, gids)
	if err != nil {
		return Range{}, err
	}
	others, err := n.ranges()
	if err != nil {
		return Range{}, err
	}
	if r, err = choose(within, n.cfg.IDsPerPod, append(used, others...)); err != nil {
		return Range{}, err
	}
	return r, write(file, r)
}

func (n *Namespaces) file(uid string) string {
	return filepath.Join(n.cfg.Root, "pods", uid, "userns")
}

// ranges returns the ranges of all pods. If a file cannot be read, its range could be anywhere, and no pod gets a new
// one.
func (n *Namespaces) ranges() ([]Range, error) {
	pods, err := os.ReadDir(filepath.Join(n.cfg.Root, "pods"))
	if err != nil {
		return nil, fmt.Errorf("list the user namespaces of pods: %w", err)
	}
	var all []Range
	for _, p := range pods {
		r, err := read(n.file(p.Name()))
		switch {
		case err == nil:
			all = append(all, r)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	return all, nil
}

func read(file string) (Range, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return Range{}, fmt.Errorf("read a pod's user namespace: %w", err)
	}
	r, err := decode(text)
	if err != nil {
		return Range{},
			fmt.Errorf("read %s, a pod's user namespace: %w; next: end the pod and remove the file", file, err)
	}
	return r, nil
}

// write writes and syncs the file. After a power cut, a range that a pod uses must not be given to another pod.
func write(file string, r Range) error {
	text, err := encode(r)
	if err != nil {
		return err
	}
	if err := checkpoint.Replace(file, text); err != nil {
		return fmt.Errorf("save the pod's user namespace: %w", err)
	}
	return nil
}

// grants reads subuid(5) or subgid(5).
func grants(file string) ([]grant, error) {
	lines, err := user.ParseSubIDFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	var list []grant
	for _, l := range lines {
		if l.SubID < 0 || l.Count <= 0 || l.SubID+l.Count > math.MaxUint32 {
			if l.Name == delegate {
				return nil, fmt.Errorf("read %s: the line of %s gives no ids", file, delegate)
			}
			continue // ids that no pod could get
		}
		list = append(list, grant{user: l.Name, ids: Range{First: uint32(l.SubID), Length: uint32(l.Count)}})
	}
	return list, nil
}
