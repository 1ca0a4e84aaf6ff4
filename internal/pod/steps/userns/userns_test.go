package userns

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/sys/mountinfo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/roottest"
)

func TestHiddenBy(t *testing.T) {
	const proc = "22 1 0:21 / /proc rw - proc proc rw\n"
	for name, test := range map[string]struct{ mounts, want string }{
		"all visible":                    {proc, ""},
		"a mount on what is empty":       {proc + "30 22 0:9 / /proc/sys/fs/binfmt_misc rw - autofs x rw\n", ""},
		"a masked file":                  {proc + "30 22 0:5 /null /proc/kcore rw - devtmpfs x rw\n", "/proc/kcore"},
		"a part that is read-only":       {proc + "30 22 0:21 /sys /proc/sys ro - proc proc rw\n", "/proc/sys"},
		"a mount on a mount of the part": {proc + "30 23 0:5 / /proc/x rw - tmpfs x rw\n", ""},
		"another one that is visible": {proc + "30 22 0:5 /null /proc/kcore rw - devtmpfs x rw\n" +
			"31 1 0:21 / /mnt rw - proc proc rw\n", ""},
	} {
		all, err := mountinfo.GetMountsFromReader(strings.NewReader(test.mounts), nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := hiddenBy(all); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestChoose(t *testing.T) {
	u := uint32(Unit)
	tests := map[string]struct {
		within Range
		length uint32
		taken  []Range
		want   Range
		none   bool
	}{
		"the first": {within: Range{u, 4 * u}, length: u, want: Range{u, u}},
		"the first gap": {within: Range{u, 4 * u}, length: u, taken: []Range{{u, u}, {3 * u, u}},
			want: Range{2 * u, u}},
		"more for each pod": {within: Range{u, 6 * u}, length: 2 * u, taken: []Range{{4 * u, u}},
			want: Range{2 * u, 2 * u}},
		"beside another's": {within: Range{u, 4 * u}, length: u, taken: []Range{{100000, 65536}},
			want: Range{3 * u, u}},
		"where it is aligned": {within: Range{u + 1, 4 * u}, length: u, want: Range{2 * u, u}},
		"none is left":        {within: Range{u, 2 * u}, length: u, taken: []Range{{u, 2 * u}}, none: true},
		"too few for anybody": {within: Range{u, u - 1}, length: u, none: true},
		"the last of all ids": {within: Range{math.MaxUint32 - 2*u + 1, u}, length: u,
			want: Range{math.MaxUint32 - 2*u + 1, u}},
		"beyond the last is -": {within: Range{math.MaxUint32 - u + 1, u - 1}, length: u, none: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := choose(test.within, test.length, test.taken)
			if got != test.want || (err != nil) != test.none {
				t.Errorf("choose = %v, %v, want %v", got, err, test.want)
			}
		})
	}
}

func TestDelegated(t *testing.T) {
	grants := func(text string) []grant {
		var list []grant
		for f := range strings.FieldsSeq(text) {
			var g grant
			name, ids, _ := strings.Cut(f, ":")
			g.user = name
			if _, err := fmt.Sscanf(ids, "%d:%d", &g.ids.First, &g.ids.Length); err != nil {
				t.Fatal(err)
			}
			list = append(list, g)
		}
		return list
	}
	everything := Range{Unit, math.MaxUint32 - 2*Unit + 1}
	tests := map[string]struct {
		uids, gids string
		within     Range
		reserved   []Range
		err        string
	}{
		"nobody has any": {within: everything},
		"another user has some": {uids: "me:100000:65536", gids: "me:100000:65536", within: everything,
			reserved: []Range{{100000, 65536}, {100000, 65536}}},
		"kubelet has some": {uids: "kubelet:65536:7208960", gids: "kubelet:65536:7208960",
			within: Range{65536, 7208960}},
		"kubelet has no groups": {uids: "kubelet:65536:65536", err: "one line in /etc/subuid"},
		"kubelet's differ": {uids: "kubelet:65536:65536", gids: "kubelet:131072:65536",
			err: "but has [65536-131071] and [131072-196607]"},
		"kubelet has two": {uids: "kubelet:65536:65536 kubelet:1310720:65536", gids: "kubelet:65536:65536",
			err: "one line"},
		"the host's own": {uids: "kubelet:1000:65536", gids: "kubelet:1000:65536", err: "below 65536"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			within, reserved, err := delegated(grants(test.uids), grants(test.gids))
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("error %v, want %q", err, test.err)
				}
				return
			}
			if err != nil || within != test.within {
				t.Errorf("within %v, %v, want %v", within, err, test.within)
			}
			if d := cmp.Diff(test.reserved, reserved); d != "" {
				t.Errorf("reserved (-want +got):\n%s", d)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	good, err := encode(Range{Unit, Unit})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(
		[]byte(
			`{"uidMappings":[{"hostId":0,"containerId":0,"length":65536}],` +
				`"gidMappings":[{"hostId":0,"containerId":0,"length":65536}]}`))
	f.Add([]byte(`{"uidMappings":[{"hostId":4294901760,"containerId":0,"length":4294901760}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := decode(text)
		if err == nil && (r.First < Unit || r.end() > math.MaxUint32 || r.Length%Unit != 0 || r.Length == 0) {
			t.Errorf("%q gives the ids %v", text, r)
		}
	})
}

func pod(uid string, hostUsers *bool) *corev1.Pod {
	p := &corev1.Pod{}
	p.UID, p.Spec.HostUsers = types.UID(uid), hostUsers
	return p
}

// namespaces makes the Namespaces of a node with directories for some pods. first returns the first id of a pod on the
// host.
func namespaces(t *testing.T, uids ...string) (n *Namespaces, first func(*Namespaces, string) uint32) {
	t.Helper()
	root := t.TempDir()
	for _, uid := range uids {
		if err := os.MkdirAll(filepath.Join(root, "pods", uid), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	return New(Config{Root: root, SubUID: filepath.Join(root, "subuid"), SubGID: filepath.Join(root, "subgid")}),
		func(n *Namespaces, uid string) uint32 {
			t.Helper()
			m, err := n.Mapping(pod(uid, new(false)))
			if err != nil {
				t.Fatal(err)
			}
			if m.Uids[0].HostId != m.Gids[0].HostId || m.Uids[0].Length != n.cfg.IDsPerPod {
				t.Errorf("%s: mapping %v", uid, m)
			}
			return m.Uids[0].HostId
		}
}

func TestMappingIsKept(t *testing.T) {
	n, first := namespaces(t, "a", "b", "c", "host")
	for _, hostUsers := range []*bool{nil, new(true)} {
		if m, err := n.Mapping(pod("host", hostUsers)); m != nil || err != nil {
			t.Errorf("a pod on the host's namespace: %v, %v", m, err)
		}
	}
	if a, b := first(n, "a"), first(n, "b"); a != Unit || b != 2*Unit {
		t.Errorf("a has %d, b has %d", a, b)
	}
	// Another process with other settings: pods keep their ids.
	again := New(n.cfg)
	if a := first(again, "a"); a != Unit {
		t.Errorf("a restarted agent gave a the ids from %d", a)
	}
	if err := os.RemoveAll(filepath.Join(n.cfg.Root, "pods/a")); err != nil {
		t.Fatal(err)
	}
	if c := first(again, "c"); c != Unit {
		t.Errorf("c has %d, not what a has left", c)
	}
	want := `{"uidMappings":[{"hostId":65536,"containerId":0,"length":65536}],` +
		`"gidMappings":[{"hostId":65536,"containerId":0,"length":65536}]}`
	if text, err := os.ReadFile(filepath.Join(n.cfg.Root, "pods/c/userns")); err != nil || string(text) != want {
		t.Errorf("file %q, %v", text, err)
	}
}

func TestConcurrentMappingsDiffer(t *testing.T) {
	var uids []string
	for i := range 50 {
		uids = append(uids, fmt.Sprint("pod", i))
	}
	n, first := namespaces(t, uids...)
	got := make(chan uint32, len(uids))
	for _, uid := range uids {
		go func() { got <- first(n, uid) }()
	}
	seen := map[uint32]bool{}
	for range uids {
		id := <-got
		if seen[id] {
			t.Errorf("two pods have the ids from %d", id)
		}
		seen[id] = true
	}
}

func TestDamagedFilesStopNewRanges(t *testing.T) {
	n, _ := namespaces(t, "a", "b")
	damaged := n.file("a")
	if err := os.WriteFile(damaged, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, uid := range []string{"a", "b"} { // b could get the range of a
		if _, err := n.Mapping(pod(uid, new(false))); err == nil ||
			!strings.Contains(err.Error(), damaged+", a pod's user namespace") {
			t.Errorf("%s: %v", uid, err)
		}
	}
	if _, err := n.Mapping(pod("../a", new(false))); err == nil {
		t.Error("a UID that leads elsewhere: no error")
	}
	if err := errors.Join(os.Remove(damaged), os.WriteFile(n.cfg.SubUID, []byte("kubelet:x:y\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Mapping(pod("a", new(false))); err == nil {
		t.Error("an unreadable /etc/subuid: no error")
	}
}

// Either answer is right, depending on the machine. An error must say why.
func TestCheck(t *testing.T) {
	roottest.Need(t, "mounting")
	before := children(t)
	closed := filepath.Join(t.TempDir(), "closed")
	if err := os.Mkdir(closed, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := Check("/proc", closed); err == nil ||
		err.Error() != "other users cannot enter "+closed+" (mode 0750): chmod o+x "+closed {
		t.Errorf("containers in a closed directory: %v", err)
	}
	if err := Check("/proc", "/"); err == nil ||
		!strings.Contains(err.Error(), "cannot be mounted with other ids") &&
			!strings.Contains(err.Error(), "allows no user namespace") {
		t.Errorf("/proc: %v", err)
	}
	if err := Check(filepath.Join(t.TempDir(), "none"), "/"); err == nil {
		t.Error("a directory that is not there: no error")
	}
	t.Logf("a temporary directory: %v", Check(t.TempDir(), "/"))
	if now := children(t); now != before {
		t.Errorf("children left: %q, before %q", now, before)
	}
}

func children(t *testing.T) string {
	t.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	var all string
	for _, task := range tasks {
		text, err := os.ReadFile(task)
		if err == nil {
			all += string(text)
		}
	}
	return all
}
