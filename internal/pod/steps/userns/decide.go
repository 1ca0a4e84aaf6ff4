package userns

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Unit is the default number of ids of a pod. Other numbers are multiples of it. The ids in usual images are below it.
const Unit = 1 << 16

// Range is a run of ids of the host. It holds for users and for groups.
type Range struct{ First, Length uint32 }

func (r Range) end() uint64 { return uint64(r.First) + uint64(r.Length) }

func (r Range) overlaps(o Range) bool {
	return uint64(r.First) < o.end() && uint64(o.First) < r.end()
}

func (r Range) String() string { return fmt.Sprintf("%d-%d", r.First, r.end()-1) }

// mapping is the user namespace for CRI: root in the namespace is the first id of the range.
func (r Range) mapping() *runtimeapi.UserNamespace {
	m := func() []*runtimeapi.IDMapping {
		return []*runtimeapi.IDMapping{{HostId: r.First, ContainerId: 0, Length: r.Length}}
	}
	return &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: m(), Gids: m()}
}

// idMapping and namespace are the content of the file, in the kubelet's format.
type idMapping struct {
	HostID      uint32 `json:"hostId"`
	ContainerID uint32 `json:"containerId"`
	Length      uint32 `json:"length"`
}

type namespace struct {
	UIDMappings []idMapping `json:"uidMappings"`
	GIDMappings []idMapping `json:"gidMappings"`
}

func encode(r Range) ([]byte, error) {
	m := []idMapping{{HostID: r.First, Length: r.Length}}
	return json.Marshal(namespace{UIDMappings: m, GIDMappings: m})
}

// decode accepts only texts that encode writes. Any other text is not a range that was given to a pod.
func decode(text []byte) (Range, error) {
	var n namespace
	if err := json.Unmarshal(text, &n); err != nil {
		return Range{}, err
	}
	if len(n.UIDMappings) != 1 || !slices.Equal(n.UIDMappings, n.GIDMappings) {
		return Range{}, errors.New("user and group ids must have the same single mapping")
	}
	m := n.UIDMappings[0]
	r := Range{First: m.HostID, Length: m.Length}
	switch {
	case m.ContainerID != 0:
		return Range{}, errors.New("root must be mapped")
	case m.Length == 0 || m.Length%Unit != 0:
		return Range{}, fmt.Errorf("%d ids are not a multiple of %d", m.Length, Unit)
	case m.HostID < Unit || r.end() > math.MaxUint32:
		return Range{}, fmt.Errorf("the ids %v are not all above the host's own", r)
	}
	return r, nil
}

// choose returns the first free range of a length. As the kubelet's, it is aligned to its length, so that pods that
// come and go leave no gaps.
func choose(within Range, length uint32, used []Range) (Range, error) {
	step := uint64(length)
	for first := (uint64(within.First) + step - 1) / step * step; first+step <= within.end(); first += step {
		r := Range{First: uint32(first), Length: length}
		if !slices.ContainsFunc(used, r.overlaps) {
			return r, nil
		}
	}
	return Range{},
		fmt.Errorf(
			"no %d ids in a row are free in %v: end pods that have hostUsers: false, or give the user %s more in "+
				"/etc/subuid and /etc/subgid", length, within, delegate)
}

// grant is a line of subuid(5) or subgid(5).
type grant struct {
	user string
	ids  Range
}

// hiddenBy returns a mount that hides a part of /proc, or "" if one of the proc file systems is visible as a whole. As
// in the kernel, mounts on directories that are always empty hide nothing.
func hiddenBy(all []*mountinfo.Info) (hides string) {
	for _, proc := range all {
		if proc.FSType != "proc" || proc.Root != "/" {
			continue
		}
		i := slices.IndexFunc(all, func(m *mountinfo.Info) bool {
			return m.Parent == proc.ID && m != proc &&
				!slices.Contains([]string{"/sys/fs/binfmt_misc", "/fs/nfsd", "/openprom"},
					strings.TrimPrefix(m.Mountpoint, proc.Mountpoint))
		})
		if i < 0 {
			return ""
		}
		hides = all[i].Mountpoint
	}
	return hides
}

// delegate is the user whose subordinate ids are for pods, as for the kubelet.
const delegate = "kubelet"

// delegated returns the ids that pods get ranges of: the delegate's ids, or else all ids from the second 65536 on.
// reserved are the ids of other users, for example for rootless containers.
func delegated(uids, gids []grant) (within Range, reserved []Range, err error) {
	mine := func(list []grant) (own []Range) {
		for _, g := range list {
			if g.user == delegate {
				own = append(own, g.ids)
			} else {
				reserved = append(reserved, g.ids)
			}
		}
		return own
	}
	u, g := mine(uids), mine(gids)
	switch {
	case len(u) == 0 && len(g) == 0:
		// The last unit contains -1, which is no id.
		return Range{First: Unit, Length: math.MaxUint32 - 2*Unit + 1}, reserved, nil
	case len(u) != 1 || !slices.Equal(u, g):
		return Range{}, nil,
			fmt.Errorf("the user %s needs one line in /etc/subuid and the same line in /etc/subgid, but has %v and %v",
				delegate, u, g)
	case u[0].First < Unit:
		return Range{}, nil,
			fmt.Errorf("/etc/subuid gives the user %s the ids %v: those below %d are the host's own", delegate, u[0],
				Unit)
	}
	return u[0], reserved, nil
}
