package test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"
	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/base/cgroupfile"
	"github.com/berth-run/berth/internal/model/pod"
)

// testRoot is the cgroup at $CGROUP, below which the script's agent has all its cgroups. It lies in each controller
// of version 1, or in the hierarchy of version 2.
func testRoot(ts *testscript.TestScript) cgroupfile.Group {
	name := ts.Getenv("CGROUP")
	g := cgroupfile.Group{Unified: cgroups.IsCgroup2UnifiedMode(), Dirs: map[string]string{}}
	if g.Unified {
		g.Dirs[""] = filepath.Join("/sys/fs/cgroup", name)
		return g
	}
	for _, c := range []string{"cpu", "cpuset", "memory", "pids"} {
		g.Dirs[c] = filepath.Join("/sys/fs/cgroup", c, name)
	}
	return g
}

// below is the cgroup at a path below g. The path may be a pattern that matches one directory.
func below(g cgroupfile.Group, path ...string) cgroupfile.Group {
	child := cgroupfile.Group{Unified: g.Unified, Dirs: map[string]string{}}
	for c, dir := range g.Dirs {
		child.Dirs[c] = filepath.Join(append([]string{dir}, path...)...)
		if found, _ := filepath.Glob(child.Dirs[c]); len(found) == 1 {
			child.Dirs[c] = found[0]
		}
	}
	return child
}

// cgroupOf returns the cgroup of a container, or of the pod if container is "-". A name that begins with "/" is the
// path or pattern of a cgroup below testRoot. It returns false while the container does not run.
func cgroupOf(ts *testscript.TestScript, name, container string) (cgroupfile.Group, bool) {
	if path, ok := strings.CutPrefix(name, "/"); ok {
		return below(testRoot(ts), path), true
	}
	p, err := clientOf(ts).Pod(key(name)).Get(context.Background())
	ts.Check(err)
	class := strings.ToLower(string(pod.QOS(p)))
	if pod.QOS(p) == corev1.PodQOSGuaranteed {
		class = ""
	}
	path := []string{"kubepods", class, "pod" + string(p.UID)}
	if onSystemd() {
		path = nestedSlices(path)
	}
	g := below(testRoot(ts), path...)
	if container == "-" {
		return g, true
	}
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if _, id, _ := strings.Cut(s.ContainerID, "://"); s.Name == container && s.State.Running != nil {
			return g.Child(id)
		}
	}
	return g, false
}

// nestedSlices returns systemd's slices for a path: the name of a slice contains the names of its parents.
func nestedSlices(path []string) (all []string) {
	for _, part := range path {
		if part == "" {
			continue
		}
		name := strings.ReplaceAll(part, "-", "_")
		if n := len(all); n > 0 {
			name = strings.TrimSuffix(all[n-1], ".slice") + "-" + name
		}
		all = append(all, name+".slice")
	}
	return all
}

// bound returns the cgroup files, and their content, that hold one value in this version of cgroups.
func bound(ts *testscript.TestScript, unified bool, name, value string) cgroupfile.Values {
	var b cgroupfile.Bounds
	n, err := strconv.ParseInt(value, 10, 64)
	switch name {
	case "cpus":
		b.CPUs, err = value, nil
	case "mems":
		b.Mems, err = value, nil
	case "shares":
		b.Shares = uint64(n)
	case "quota":
		b.Quota, b.Period = n, 100_000
	case "memory":
		b.Memory = n
	case "pids":
		b.Pids = n
	default:
		ts.Fatalf("unknown cgroup value %q", name)
	}
	ts.Check(err)
	return b.Values(unified)
}

// setCgroup changes a value of a cgroup without the agent.
func setCgroup(ts *testscript.TestScript, args []string) {
	g, ok := cgroupOf(ts, args[0], args[1])
	if !ok {
		ts.Fatalf("container %s does not run", args[1])
	}
	for file, value := range bound(ts, g.Unified, args[2], args[3]) {
		value, _, _ = strings.Cut(value, "|")
		ts.Check(cgroupfile.Write(g, file, value))
	}
}

func awaitCgroup(ts *testscript.TestScript, args []string) {
	var g cgroupfile.Group
	ok := false
	eventually(ts, func() (bool, any) {
		if !ok || !g.Exists() { // a request in every round would cost the agent CPU time
			g, ok = cgroupOf(ts, args[0], args[1])
		}
		want := bound(ts, g.Unified, args[2], args[3])
		have, err := cgroupfile.Read(g, want)
		return ok && err == nil && len(have) == len(want) && len(cgroupfile.Differences(want, have)) == 0, have
	})
}

// makeCgroup makes a cgroup below testRoot, and removes it when the script ends.
func makeCgroup(ts *testscript.TestScript, args []string) {
	for _, dir := range below(testRoot(ts), args[0]).Dirs {
		ts.Check(os.MkdirAll(dir, 0o755))
	}
	ts.Defer(func() { removeCgroup(ts, args) })
}

// removeCgroup removes a cgroup that makeCgroup made. It may be gone already.
func removeCgroup(ts *testscript.TestScript, args []string) {
	for _, dir := range below(testRoot(ts), args[0]).Dirs {
		if err := os.Remove(dir); err != nil && !os.IsNotExist(err) {
			ts.Logf("%v", err)
		}
	}
}

// awaitCgroupGone waits until a cgroup below testRoot does not exist in any hierarchy.
func awaitCgroupGone(ts *testscript.TestScript, args []string) {
	eventually(ts, func() (bool, any) {
		var left []string
		for _, dir := range below(testRoot(ts), args[0]).Dirs {
			if _, err := os.Stat(dir); !os.IsNotExist(err) {
				left = append(left, dir)
			}
		}
		return len(left) == 0, left
	})
}

// vanish removes a pod's cgroup while its processes run. It moves them to the root of the hierarchy, as cgdelete
// does.
func vanish(ts *testscript.TestScript, args []string) {
	g, _ := cgroupOf(ts, args[0], "-")
	for c, dir := range g.Dirs {
		root := filepath.Join("/sys/fs/cgroup", c)
		eventually(ts, func() (bool, any) {
			var dirs []string
			err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					dirs = append(dirs, path)
				}
				return nil
			})
			ts.Check(err)
			for _, d := range slices.Backward(dirs) {
				pids, err := cgroups.GetPids(d)
				if err != nil {
					continue
				}
				for _, pid := range pids {
					// A process that has ended meanwhile cannot be moved, and need not.
					_ = os.WriteFile(filepath.Join(root, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
				}
				_ = os.Remove(d)
			}
			return len(dirs) == 0 || !exists(dir), dirs
		})
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// awaitMetric waits until the agent's metrics contain a line.
func awaitMetric(ts *testscript.TestScript, args []string) {
	eventually(ts, func() (bool, any) {
		text, err := readMetrics(context.Background(), rootOf(ts))
		if err != nil {
			return false, err
		}
		return strings.Contains(text, args[0]+"\n"), "no such line"
	})
}

// readMetrics reads the metrics of the agent on a root directory.
func readMetrics(ctx context.Context, root string) (string, error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(root, "berth.sock"))
	}
	c := &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://berth/metrics", http.NoBody)
	if err != nil {
		return "", err
	}
	response, err := c.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}
