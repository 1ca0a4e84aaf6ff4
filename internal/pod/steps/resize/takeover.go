package resize

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/dump"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/base/document"
)

// The names of the kubelet's state files in its root directory.
const (
	allocatedFile = "allocated_pods_state"
	actuatedFile  = "actuated_pods_state"
)

// writer marks the files that Berth wrote. A kubelet ignores the mark, and drops it when it writes the file.
const writer = "berth"

// sealed is the content of a file. The checksum is an FNV-1a hash of a dump of Data.
type sealed struct {
	Data     string `json:"data"`
	Checksum uint64 `json:"checksum"`
	Writer   string `json:"writer,omitempty"`
}

// entries is the decoded Data.
type entries struct {
	Entries map[types.UID]podInfo `json:"entries,omitempty"`
}

// podInfo holds the resources of a pod in the kubelet's form.
type podInfo struct {
	ContainerResources map[string]corev1.ResourceRequirements
	PodLevelResources  *corev1.ResourceRequirements
}

// infoOf converts sizes.
func infoOf(sizes Sizes) podInfo {
	i := podInfo{ContainerResources: map[string]corev1.ResourceRequirements{}}
	for name, r := range sizes {
		switch {
		case name != Whole:
			i.ContainerResources[name] = r
		case len(r.Requests)+len(r.Limits)+len(r.Claims) > 0:
			i.PodLevelResources = &r
		}
	}
	return i
}

// sizes converts back.
func (i podInfo) sizes() Sizes {
	all := Sizes{Whole: {}}
	if i.PodLevelResources != nil {
		all[Whole] = *i.PodLevelResources
	}
	for name, r := range i.ContainerResources {
		all[name] = r
	}
	return all
}

// actuated returns the resources that a pod's containers have, by name. As in a kubelet's file, containers have the
// pod's limits where they have none.
func (e *entry) actuated() Sizes {
	all := Sizes{Whole: e.Allocated[Whole]}
	for name, g := range e.Actuated {
		all[name] = g.effective(&corev1.Pod{})
	}
	return all
}

// seal encodes a file.
func seal(all map[types.UID]podInfo) ([]byte, error) {
	data, err := json.Marshal(entries{all})
	if err != nil {
		return nil, err
	}
	return json.Marshal(sealed{Data: string(data), Checksum: sum(string(data)), Writer: writer})
}

// unseal decodes a file that a kubelet wrote. It returns nothing for a file that Berth wrote.
func unseal(text []byte) (map[types.UID]podInfo, error) {
	var s sealed
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, err
	}
	if s.Writer == writer {
		return nil, nil
	}
	if got := sum(s.Data); got != s.Checksum {
		return nil, fmt.Errorf("the checksum is %d, but the data has %d", s.Checksum, got)
	}
	var e entries
	data := []byte(s.Data)
	_, err := document.Document{Line: 1, Text: data}.DecodeLenient(data, &e) // it refuses costly quantities
	return e.Entries, err
}

func sum(data string) uint64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(dump.ForHash(data))) // a hash never returns an error
	return uint64(h.Sum32())
}

// takeOver reads the allocations of a kubelet that ran last on this node. They outweigh the records of an earlier
// agent. The caller holds the lock of s.
func takeOver(s *ledger) error {
	if s.kubelet == "" {
		return nil
	}
	path := filepath.Join(s.kubelet, allocatedFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var all map[types.UID]podInfo
	if err == nil {
		all, err = unseal(text)
	}
	if err != nil {
		return fmt.Errorf("read the kubelet's allocations in %s: %w", path, err)
	}
	for uid, i := range all {
		e := s.pods[uid]
		if e == nil {
			e = &entry{}
			s.pods[uid] = e
		}
		e.Allocated = i.sizes()
		s.touch(uid)
	}
	return nil
}

// mirror writes the allocated and actuated resources for a kubelet that takes over.
func mirror(s *ledger) error {
	if s.kubelet == "" {
		return nil
	}
	allocated, actuated := map[types.UID]podInfo{}, map[types.UID]podInfo{}
	s.mu.Lock()
	for uid, e := range s.pods {
		allocated[uid], actuated[uid] = infoOf(e.Allocated), infoOf(e.actuated())
	}
	s.mu.Unlock()
	var errs []error
	for name, all := range map[string]map[types.UID]podInfo{allocatedFile: allocated, actuatedFile: actuated} {
		text, err := seal(all)
		if err == nil {
			err = checkpoint.ReplaceUnsynced(filepath.Join(s.kubelet, name), text)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
