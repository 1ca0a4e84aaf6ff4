package network

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berth-run/berth/internal/base/eventually"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// contents returns the entries of a directory: the text of each file and the target of each link.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		text, err := os.ReadFile(path)
		if entry.Type() == fs.ModeSymlink {
			to, err := os.Readlink(path)
			all[entry.Name()] = "-> " + to
			if err == nil {
				continue
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			delete(all, entry.Name()) // removed since the directory was read
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		all[entry.Name()] = string(text)
	}
	return all
}

// containerd's directory follows every change of the machine's CNI configuration, also when the directories above it
// appear and disappear.
func TestFollowConfDir(t *testing.T) {
	top := t.TempDir()
	dir := filepath.Join(top, "cni", "net.d")
	config := example()
	config.Dir, config.CNIConfDir, config.CNIOnly = filepath.Join(top, "root", "cni"), dir, true
	config.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	n := New(config)
	if err := n.Prepare(t.Context(), Machine{}); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- n.Follow(ctx) }()
	linked := func(want map[string]string) {
		t.Helper()
		eventually.Nothing(t, func() string { return cmp.Diff(want, contents(t, n.config.Dir)) })
	}
	remove := func(path string) {
		t.Helper()
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
	linked(map[string]string{})
	write(t, filepath.Join(dir, "README"), "no configuration")
	write(t, filepath.Join(dir, "calico-kubeconfig"), "nor this")
	write(t, filepath.Join(dir, "10-calico.conflist"), "")
	write(t, filepath.Join(dir, "20-other.conf"), "b")
	linked(map[string]string{"20-other.conf": "b"})
	write(t, filepath.Join(dir, "10-calico.conflist"), "a")
	linked(map[string]string{"10-calico.conflist": "a", "20-other.conf": "b"})
	write(t, filepath.Join(dir, "calico", "more.conf"), "c")
	write(t, filepath.Join(dir, "10-calico.conflist"), "A")
	linked(map[string]string{"10-calico.conflist": "A", "20-other.conf": "b",
		"calico": "-> " + filepath.Join(dir, "calico")})
	remove(filepath.Join(dir, "10-calico.conflist"))
	remove(filepath.Join(dir, "calico"))
	linked(map[string]string{"20-other.conf": "b"})
	remove(dir)
	linked(map[string]string{})
	write(t, filepath.Join(dir, "1.json"), "d")
	linked(map[string]string{"1.json": "d"})
	if err := os.Rename(filepath.Dir(dir), filepath.Join(top, "away")); err != nil {
		t.Fatal(err)
	}
	// The inotify watch of a renamed directory stays on the renamed one.
	write(t, filepath.Join(dir, "2.conf"), "e")
	linked(map[string]string{"2.conf": "e"})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// Prepare removes files of an earlier agent from containerd's directory before containerd reads it.
func TestPlaceAnew(t *testing.T) {
	top := t.TempDir()
	config := example()
	config.Dir, config.CNIConfDir, config.CNIOnly = filepath.Join(top, "cni"), filepath.Join(top, "net.d"), true
	write(t, filepath.Join(config.CNIConfDir, "10-net.conflist"), "mine")
	write(t, filepath.Join(top, "cni", "10-berth.conflist"), "built in")
	write(t, filepath.Join(top, "cni", "10-net.conflist.next"), "half")
	n := New(config)
	if err := n.Prepare(t.Context(), Machine{}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"10-net.conflist": "mine"}, contents(t, n.config.Dir)); diff != "" {
		t.Errorf("for containerd (-want +got):\n%s", diff)
	}
}

// The ranges from a cluster replace the earlier ones, also after a restart of the agent. Ranges in the configuration
// take precedence over stored ones. The network of the machine's CNI configuration does not change.
func TestRangesOfTheCluster(t *testing.T) {
	root, confs := t.TempDir(), t.TempDir()
	write(t, filepath.Join(confs, "10-net.conf"), "another's")
	start := func(given ...netip.Prefix) *Network {
		n := New(Config{Dir: filepath.Join(root, "cni"), RangesFile: filepath.Join(root, "pod-cidrs"), PodCIDRs: given,
			Fixed: len(given) > 0, CNIConfDir: confs, Plugins: noPlugins{},
			Log: slog.New(slog.DiscardHandler)})
		if err := n.Prepare(t.Context(), Machine{}); err != nil {
			t.Fatal(err)
		}
		return n
	}
	first := start()
	for _, bad := range []string{"10.99.7.1/24", "10.99.7.0/24,10.99.8.0/24", "pods"} {
		if err := first.useRanges(t.Context(), bad); err == nil {
			t.Errorf("invalid ranges %s were accepted", bad)
		}
	}
	if err := first.useRanges(t.Context(), "10.99.7.0/24"); err != nil {
		t.Fatal(err)
	}
	got := [][]netip.Prefix{start().config.PodCIDRs, start(prefixes("10.5.0.0/16")...).config.PodCIDRs}
	want := [][]netip.Prefix{prefixes("10.99.7.0/24"), prefixes("10.5.0.0/16")}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Errorf("after a restart (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"10-net.conf": "another's"},
		contents(t, first.config.Dir)); diff != "" {
		t.Errorf("for containerd (-want +got):\n%s", diff)
	}
}
