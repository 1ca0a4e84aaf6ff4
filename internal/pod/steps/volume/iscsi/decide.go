package iscsi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/safepath"
	"github.com/berth-run/berth/internal/pod/steps/volume"
)

// defaultPort is the port of iSCSI targets.
const defaultPort = "3260"

// source is the source of a volume, from the pod's spec or from a PersistentVolume.
type source struct {
	name      string // of the volume, or of the PersistentVolume
	portals   []string
	iqn       string
	lun       int32
	base      string // the interface of open-iscsi that the volume names
	initiator string // with a name of its own, the volume has an interface of its own
	fsType    string
	options   []string
	readOnly  bool

	discoveryCHAP, sessionCHAP bool
	secret                     *corev1.SecretReference
}

// iface is the name of the interface of the volume's sessions. The kubelet names it so, too.
func (s source) iface() string {
	if s.initiator != "" {
		return s.portals[0] + ":" + s.name
	}
	return s.base
}

// sourceOf returns the source of a volume. It is pure.
func sourceOf(r volume.Request) (source, error) {
	if r.Persistent == nil {
		v := r.Volume.ISCSI
		s := source{name: r.Volume.Name, portals: append([]string{v.TargetPortal}, v.Portals...), iqn: v.IQN,
			lun: v.Lun, base: v.ISCSIInterface, fsType: v.FSType, readOnly: v.ReadOnly,
			discoveryCHAP: v.DiscoveryCHAPAuth, sessionCHAP: v.SessionCHAPAuth}
		if v.InitiatorName != nil {
			s.initiator = *v.InitiatorName
		}
		if v.SecretRef != nil {
			s.secret = &corev1.SecretReference{Namespace: r.Pod.Namespace, Name: v.SecretRef.Name}
		}
		return s.complete()
	}
	v := r.Persistent.Spec.ISCSI
	s := source{name: r.Persistent.Name, portals: append([]string{v.TargetPortal}, v.Portals...), iqn: v.IQN,
		lun: v.Lun, base: v.ISCSIInterface, fsType: v.FSType, readOnly: r.ReadOnly,
		options: r.Persistent.Spec.MountOptions, discoveryCHAP: v.DiscoveryCHAPAuth, sessionCHAP: v.SessionCHAPAuth}
	if modes := r.Persistent.Spec.AccessModes; len(modes) == 1 && modes[0] == corev1.ReadOnlyMany {
		s.readOnly = true
	}
	if v.InitiatorName != nil {
		s.initiator = *v.InitiatorName
	}
	if v.SecretRef != nil {
		s.secret = v.SecretRef.DeepCopy()
		if s.secret.Namespace == "" {
			s.secret.Namespace = r.Pod.Namespace
		}
	}
	return s.complete()
}

// complete fills in defaults, and refuses values that would be another argument or another path.
func (s source) complete() (source, error) {
	if s.base == "" {
		s.base = "default"
	}
	var portals []string
	for _, text := range s.portals {
		portal, err := portalOf(text)
		if err != nil {
			return s, err
		}
		if !slices.Contains(portals, portal) {
			portals = append(portals, portal)
		}
	}
	s.portals = portals
	kinds := []string{"iqn.", "eui.", "naa."}
	if !slices.ContainsFunc(kinds, func(k string) bool { return strings.HasPrefix(s.iqn, k) }) || !isName(s.iqn) {
		return s, fmt.Errorf("iSCSI target %q: its name must begin with one of iqn, eui and naa, and a dot", s.iqn)
	}
	if !isName(s.base) || s.base[0] == '-' {
		return s, fmt.Errorf("iscsiInterface %q: not the name of an interface of open-iscsi", s.base)
	}
	if s.initiator != "" && (!isName(s.initiator) || s.initiator[0] == '-') {
		return s, fmt.Errorf("initiatorName %q: not the name of an initiator", s.initiator)
	}
	return s, nil
}

// isName reports whether a text is one word that leads to no other directory.
func isName(text string) bool {
	return text != "" && text != "." && text != ".." && len(text) < 224 &&
		!strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == '/' || r == 0x7f })
}

// portalOf returns the address and port of a portal in the form of open-iscsi.
func portalOf(text string) (string, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		host, port = strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"), defaultPort
	}
	address, addressErr := netip.ParseAddr(host)
	number, portErr := strconv.ParseUint(port, 10, 16)
	if addressErr != nil || portErr != nil || number == 0 {
		return "", fmt.Errorf("portal %q of an iSCSI target: write an IP address, or an address and a port", text)
	}
	return net.JoinHostPort(address.String(), port), nil
}

// identity identifies a disk and its use. Its JSON is the StageID.
type identity struct {
	Iface  string `json:"iface"`
	Portal string `json:"portal"`
	IQN    string `json:"iqn"`
	LUN    string `json:"lun"`
	// Block: the pods use the disk as a device. Nothing is mounted.
	Block bool `json:"block,omitempty"`
}

func identityOf(s source, block bool) identity {
	return identity{Iface: s.iface(), Portal: s.portals[0], IQN: s.iqn, LUN: strconv.Itoa(int(s.lun)), Block: block}
}

func (id identity) String() string {
	text, _ := json.Marshal(id) // a struct of strings always has JSON
	return string(text)
}

// check refuses an identity that would lead to a directory outside the kubelet's for iSCSI.
func (id identity) check() error {
	if id.IQN == "" {
		return errors.New("it names no target")
	}
	return errors.Join(safepath.Name("iface-"+id.Iface), safepath.Name(id.Portal+"-"+id.IQN+"-lun-"+id.LUN))
}

// dir is the kubelet's directory for the mount of the disk, below its directory for iSCSI.
func (id identity) dir() string {
	return filepath.Join("iface-"+id.Iface, id.Portal+"-"+id.IQN+"-lun-"+id.LUN)
}

// identityOfDir reads an identity from a directory that a kubelet or this package has named.
func identityOfDir(dir string) (id identity, ok bool) {
	iface, ok := strings.CutPrefix(filepath.Base(filepath.Dir(dir)), "iface-")
	portal, rest, found := strings.Cut(filepath.Base(dir), "-")
	at := strings.LastIndex(rest, "-lun-")
	if !ok || !found || at < 0 {
		return identity{}, false
	}
	return identity{Iface: iface, Portal: portal, IQN: rest[:at], LUN: rest[at+len("-lun-"):]}, true
}

// unique is the volume's name in a Node's status. The controller of the cluster computes it from the volume, too.
func unique(r volume.Request) corev1.UniqueVolumeName {
	if r.Persistent != nil {
		v := r.Persistent.Spec.ISCSI
		return uniqueName(v.TargetPortal, v.IQN, strconv.Itoa(int(v.Lun)))
	}
	v := r.Volume.ISCSI
	return uniqueName(v.TargetPortal, v.IQN, strconv.Itoa(int(v.Lun)))
}

func uniqueName(portal, iqn, lun string) corev1.UniqueVolumeName {
	return corev1.UniqueVolumeName("kubernetes.io/iscsi/" + portal + ":" + iqn + ":" + lun)
}

// adopted are the possible names in the Node's status of a disk that a kubelet has mounted. A volume may have left out
// the port, which is in the kubelet's path.
func (id identity) adopted() []corev1.UniqueVolumeName {
	return []corev1.UniqueVolumeName{uniqueName(id.Portal, id.IQN, id.LUN),
		uniqueName(strings.TrimSuffix(id.Portal, ":"+defaultPort), id.IQN, id.LUN)}
}

// record is the record of a shared part's sessions, with the kubelet's names.
type record struct {
	VolName       string
	Portals       []string
	Iqn           string
	Lun           string
	Iface         string
	InitiatorName string
	// Begun are the portals whose sessions were begun for this volume, or for another one that shares them.
	Begun []string `json:",omitempty"`

	file string // where the record is
}

// begin returns the portals whose sessions a volume is responsible for. They are the portals without a session, the
// portals of its earlier record, and the portals whose sessions other volumes of the target have begun. Sessions that
// the machine's administrator has begun do not count.
func begin(portals, sessions []string, own record, others []record) []string {
	var begun []string
	for _, p := range portals {
		isBegun := func(r record) bool { return r.Iface == own.Iface && slices.Contains(r.Begun, p) }
		if !slices.Contains(sessions, p) || isBegun(own) || slices.ContainsFunc(others, isBegun) {
			begun = append(begun, p)
		}
	}
	return begun
}

// work lists the changes to the machine when a volume goes.
type work struct {
	logout     []string // the portals whose sessions end
	heirs      []record // changed records of other volumes, which become responsible for sessions
	removeDisk bool     // the disk goes, and the sessions stay for other disks
	removeFace bool     // the interface was made for the volume
}

// end decides what happens when a volume goes. others are the records of other volumes of the target that stay.
func end(own record, others []record) work {
	var w work
	others, changed := slices.Clone(others), map[int]bool{}
	for _, p := range own.Begun {
		inUse := func(r record) bool { return r.Iface == own.Iface && slices.Contains(r.Portals, p) }
		isBegun := func(r record) bool { return inUse(r) && slices.Contains(r.Begun, p) }
		heir := slices.IndexFunc(others, inUse)
		switch {
		case heir < 0:
			w.logout = append(w.logout, p)
		case !slices.ContainsFunc(others, isBegun):
			others[heir].Begun = append(slices.Clone(others[heir].Begun), p)
			changed[heir] = true
		}
	}
	for i, r := range others {
		if changed[i] {
			w.heirs = append(w.heirs, r)
		}
	}
	w.removeDisk = len(own.Begun) > 0 &&
		!slices.ContainsFunc(others, func(r record) bool { return r.Lun == own.Lun })
	w.removeFace = own.InitiatorName != "" && len(w.logout) == len(own.Begun)
	return w
}

// settings returns the settings in the output of "iscsiadm -m iface -o show" that a copy of the interface gets.
func settings(output string) [][2]string {
	var all [][2]string
	for line := range strings.Lines(output) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), " = ")
		if ok && strings.HasPrefix(name, "iface.") && value != "" && value != "<empty>" &&
			name != "iface.iscsi_ifacename" && name != "iface.initiatorname" {
			all = append(all, [2]string{name, value})
		}
	}
	return all
}
