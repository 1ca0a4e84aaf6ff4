package poddir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/roottest"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/worker"
)

type recorded []string

func (r *recorded) Event(_ corev1.ObjectReference, _, reason, format string, args ...any) {
	*r = append(*r, reason+": "+fmt.Sprintf(format, args...))
}

func node(t *testing.T) (*Dirs, string) {
	t.Helper()
	root := t.TempDir()
	return New(Config{Root: root, Logs: filepath.Join(root, "logs"), HostsFile: filepath.Join(root, "host-hosts")}),
		root
}

func run(p *corev1.Pod) *worker.Run {
	return &worker.Run{Pod: &pod.Pod{Pod: p}, Stop: &pod.Stop{Reason: "Completed"}}
}

// modes returns the modes of the files and directories below a directory.
func modes(t *testing.T, root string) map[string]os.FileMode {
	t.Helper()
	found := map[string]os.FileMode{}
	err := filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		if err != nil || path == root {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		info, err := e.Info()
		if err == nil {
			found[rel] = info.Mode()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestLife(t *testing.T) {
	d, root := node(t)
	p := named("web", corev1.PodSpec{})
	for range 2 {
		if err := d.Step().Setup(t.Context(), run(p)); err != nil {
			t.Fatal(err)
		}
	}
	dir := func(m os.FileMode) os.FileMode { return os.ModeDir | m }
	want := map[string]os.FileMode{
		"pods": dir(0o750), "pods/u1": dir(0o750), "pods/u1/volumes": dir(0o750), "pods/u1/plugins": dir(0o750),
		"pods/u1/containers": dir(0o750),
		"logs":               dir(0o755), "logs/ns_web_u1": dir(0o755),
	}
	if d := cmp.Diff(want, modes(t, root)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	// Another process, which knows only the UID.
	d, _ = New(d.cfg), root
	for range 2 {
		if err := d.Step().Teardown(t.Context(),
			run(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u1"}})); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff(map[string]os.FileMode{"pods": dir(0o750), "logs": dir(0o755), "logs/ns_web_u1": dir(0o755)},
		modes(t, root)); d != "" {
		t.Errorf("after teardown (-want +got):\n%s", d)
	}
	gone := run(p)
	gone.Stop.Remove = true
	if err := d.Step().Teardown(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	if entries, _ := os.ReadDir(filepath.Join(root, "logs")); len(entries) > 0 {
		t.Errorf("logs left: %v", entries)
	}
}

func TestRefusesToRemoveWhatIsMounted(t *testing.T) {
	roottest.Need(t, "mounting")
	d, root := node(t)
	p := named("web", corev1.PodSpec{})
	if err := d.Step().Setup(t.Context(), run(p)); err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(root, "pods/u1/volumes/mounted")
	if err := errors.Join(os.Mkdir(at, 0o755), unix.Mount("tmpfs", at, "tmpfs", 0, "size=4k")); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Unmount(at, unix.MNT_DETACH) }()
	err := d.Step().Teardown(t.Context(), run(p))
	if want := "remove the pod's directory: still mounted in it: " + at + " (tmpfs)"; err == nil ||
		err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err := os.Stat(filepath.Join(root, "pods/u1/containers")); err != nil {
		t.Errorf("something was removed: %v", err)
	}
	if err := errors.Join(unix.Unmount(at, 0), d.Step().Teardown(t.Context(), run(p))); err != nil {
		t.Errorf("once it is unmounted: %v", err)
	}
}

func TestNamesThatLeaveTheDirectoryAreRefused(t *testing.T) {
	d, root := node(t)
	for _, p := range []*corev1.Pod{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "../u1"}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: ""}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x/../../../web", UID: "u1"}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "../ns", Name: "web", UID: "u1"}},
	} {
		if err := d.Step().Setup(t.Context(), run(p)); err == nil {
			t.Errorf("%s/%s with UID %q: no error", p.Namespace, p.Name, p.UID)
		}
	}
	if _, err := d.TerminationLog(named("web", corev1.PodSpec{}), "../../x", 0); err == nil {
		t.Error("container name: no error")
	}
	if left := modes(t, root); len(left) > 0 {
		t.Errorf("made: %v", left)
	}
}

func TestOrphans(t *testing.T) {
	d, root := node(t)
	known := func(uid types.UID) bool { return uid == "known" }
	if got, err := d.Orphans(known); err != nil || len(got) > 0 {
		t.Errorf("before the first pod: %v, %v", got, err)
	}
	for _, uid := range []types.UID{"known", "lost-1", "lost-2"} {
		p := named("web", corev1.PodSpec{})
		p.UID = uid
		if err := d.Step().Setup(t.Context(), run(p)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "logs/file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	want := []types.UID{"lost-1", "lost-2"}
	if got, err := d.Orphans(known); err != nil || !slices.Equal(got, want) {
		t.Errorf("directories: %v, %v", got, err)
	}
	if got, err := d.LogOrphans(known); err != nil || !slices.Equal(got, want) {
		t.Errorf("logs: %v, %v", got, err)
	}
}

func TestHosts(t *testing.T) {
	d, root := node(t)
	p := named("web", corev1.PodSpec{})
	if err := d.Step().Setup(t.Context(), run(p)); err != nil {
		t.Fatal(err)
	}
	write := func(ips ...string) os.FileInfo {
		path, err := d.Hosts(p, ips)
		if err != nil {
			t.Fatal(err)
		}
		if want := filepath.Join(root, "pods/u1/etc-hosts"); path != want {
			t.Errorf("path %s, want %s", path, want)
		}
		content, err := os.ReadFile(path)
		if want := hosts(ips, PodNames{Hostname: "web"}, nil); err != nil || string(content) != want {
			t.Errorf("content %q, %v, want %q", content, err, want)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode() != 0o644 {
			t.Errorf("%v, %v", info, err)
		}
		return info
	}
	first := write("10.0.0.1")
	if !os.SameFile(first, write("10.0.0.1")) {
		t.Error("what did not change is another file")
	}
	if os.SameFile(first, write("10.0.0.2")) {
		t.Error("the file was changed under those who mount it")
	}
	if err := os.Truncate(filepath.Join(root, "pods/u1/etc-hosts"), 1<<40); err != nil { // as a container may do
		t.Fatal(err)
	}
	write("10.0.0.2")
	if left, _ := filepath.Glob(filepath.Join(root, "pods/u1/.etc-hosts*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	p.Spec.HostNetwork = true
	path, err := d.Hosts(p, nil)
	if content, _ := os.ReadFile(path); err != nil || !strings.HasSuffix(string(content), "(host network).\n") {
		t.Errorf("a host without its file: content %q, %v", content, err)
	}
	if err := os.WriteFile(filepath.Join(root, "host-hosts"), []byte("127.0.0.1 me\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	path, err = d.Hosts(p, nil)
	if content, _ := os.ReadFile(path); err != nil ||
		!strings.HasSuffix(string(content), "(host network).\n127.0.0.1 me\n") {
		t.Errorf("content %q, %v", content, err)
	}
}

func TestTerminationLog(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	d, root := node(t)
	p := named("web", corev1.PodSpec{})
	for restart, want := range map[int]string{0: "00000000", 17: "00000011"} {
		for range 2 { // a second attempt of the same instance begins with an empty file
			path, err := d.TerminationLog(p, "app", restart)
			if want := filepath.Join(root, "pods/u1/containers/app", want); err != nil || path != want {
				t.Fatalf("got %s, %v, want %s", path, err, want)
			}
			info, err := os.Stat(path)
			if err != nil || info.Mode() != 0o666 || info.Size() != 0 {
				t.Errorf("%v, %v", info, err)
			}
			if err := os.WriteFile(path, []byte("bye"), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Only root can write to the directory. Nevertheless, an existing file is never written to.
	dir, outside := filepath.Join(root, "pods/u1/containers/app"), filepath.Join(root, "outside")
	if err := errors.Join(os.WriteFile(outside, []byte("kept"), 0o600),
		os.Symlink(outside, filepath.Join(dir, "00000001")),
		unix.Mkfifo(filepath.Join(dir, "00000002"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, restart := range []int{1, 2} {
		path, err := d.TerminationLog(p, "app", restart)
		if info, statErr := os.Lstat(path); err != nil || statErr != nil || info.Mode() != 0o666 {
			t.Errorf("in the place of something else: %v, %v, %v", info, err, statErr)
		}
	}
	if content, err := os.ReadFile(outside); err != nil || string(content) != "kept" {
		t.Errorf("what the link led to: %q, %v", content, err)
	}
}

func TestDNSFromTheHost(t *testing.T) {
	_, root := node(t)
	conf, stub := filepath.Join(root, "resolv.conf"), filepath.Join(root, "behind")
	events := &recorded{}
	d := New(Config{ResolvConf: conf, ResolvConfBehindStub: stub, Resolver: Resolver{}, Events: events})
	p := named("web", corev1.PodSpec{DNSPolicy: corev1.DNSClusterFirst})
	if _, err := d.DNS(p); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no resolv.conf: %v", err)
	}
	servers := func(p *corev1.Pod) string {
		c, err := d.DNS(p)
		if err != nil {
			t.Error(err)
		}
		return strings.Join(c.GetServers(), " ")
	}
	if err := os.WriteFile(conf, []byte("nameserver 127.0.0.53\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := servers(p); got != "127.0.0.53" {
		t.Errorf("a stub with nothing behind it: %q", got)
	}
	if err := os.WriteFile(stub, []byte("nameserver 192.0.2.53\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := servers(p); got != "192.0.2.53" {
		t.Errorf("a stub: %q", got)
	}
	if got := servers(named("web", corev1.PodSpec{HostNetwork: true})); got != "127.0.0.53" {
		t.Errorf("on the host's network: %q", got)
	}
	if len(*events) != 4 || !strings.HasPrefix((*events)[0], "MissingClusterDNS: kubelet does not have ClusterDNS") ||
		!strings.HasPrefix((*events)[1], `MissingClusterDNS: pod: "web_ns(u1)". kubelet does not have ClusterDNS`) {
		t.Errorf("events %q, want one of the node and one of the pod, twice", *events)
	}
}
