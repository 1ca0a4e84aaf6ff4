package fc

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/safepath"
	"github.com/berth-run/berth/internal/pod/steps/volume"
)

// source is the source of a volume, from the pod's spec or from a PersistentVolume.
type source struct {
	wwns     []string // of the targets
	lun      string
	wwids    []string // of the disk, without wwns
	fsType   string
	options  []string
	readOnly bool
}

// sourceOf returns the source of a volume. It is pure.
func sourceOf(r volume.Request) (source, error) {
	v, s := r.Volume.FC, source{}
	if r.Persistent != nil {
		v, s.readOnly, s.options = r.Persistent.Spec.FC, r.ReadOnly, r.Persistent.Spec.MountOptions
		modes := r.Persistent.Spec.AccessModes
		s.readOnly = s.readOnly || len(modes) == 1 && modes[0] == corev1.ReadOnlyMany
	} else {
		s.readOnly = v.ReadOnly
	}
	s.fsType = v.FSType
	switch {
	case len(v.TargetWWNs) > 0 && v.Lun != nil:
		s.wwns, s.lun = v.TargetWWNs, strconv.Itoa(int(*v.Lun))
	case len(v.WWIDs) > 0:
		s.wwids = v.WWIDs
	default:
		return s, errors.New("the fc volume names no disk: set targetWWNs and lun, or wwids")
	}
	for _, name := range slices.Concat(s.wwns, s.wwids) {
		if safepath.Name(name) != nil || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			return s, fmt.Errorf("%q: not the name of a Fibre Channel target or disk", name)
		}
	}
	return s, nil
}

// identity identifies a disk and its use. Its JSON is the StageID.
type identity struct {
	// Name is the kubelet's name of the directory where the disk is mounted.
	Name  string `json:"name"`
	Block bool   `json:"block,omitempty"`
}

func (s source) identity(block bool) identity {
	if len(s.wwns) > 0 {
		return identity{strings.Join(s.wwns, "-") + "-lun-" + s.lun, block}
	}
	return identity{strings.Join(s.wwids, "-"), block}
}

func (id identity) String() string {
	text, _ := json.Marshal(id) // a struct of strings always has JSON
	return string(text)
}

// adopted is the name in the Node's status of a disk that a kubelet has mounted.
func (id identity) adopted() corev1.UniqueVolumeName {
	if at := strings.LastIndex(id.Name, "-lun-"); at >= 0 {
		return source{wwns: strings.Split(id.Name[:at], "-"), lun: id.Name[at+len("-lun-"):]}.unique()
	}
	return source{wwids: strings.Split(id.Name, "-")}.unique()
}

// unique is the volume's name in a Node's status. The controller of the cluster computes it from the volume, too.
func (s source) unique() corev1.UniqueVolumeName {
	if len(s.wwns) > 0 {
		return corev1.UniqueVolumeName(fmt.Sprintf("kubernetes.io/fc/%v:%s", s.wwns, s.lun))
	}
	return corev1.UniqueVolumeName(fmt.Sprintf("kubernetes.io/fc/%v", s.wwids))
}

// links returns which of the names in a directory of /dev/disk lead to the disk. The directory is by-path for a disk
// that is named by its targets, and by-id for one that is named itself.
func (s source) links(names []string) []string {
	var match func(string) bool
	if len(s.wwns) > 0 {
		var quoted []string
		for _, wwn := range s.wwns {
			quoted = append(quoted, regexp.QuoteMeta(wwn))
		}
		match = regexp.MustCompile("^(pci-.*-)?fc-0x(" + strings.Join(quoted, "|") + ")-lun-" +
			regexp.QuoteMeta(s.lun) + "$").MatchString
	} else {
		// udev replaces blanks, which are in names that begin with a vendor's name.
		match = func(name string) bool {
			return slices.ContainsFunc(s.wwids, func(id string) bool {
				return name == "scsi-"+strings.ReplaceAll(id, " ", "_")
			})
		}
	}
	var found []string
	for _, name := range names {
		if match(name) {
			found = append(found, name)
		}
	}
	return found
}
