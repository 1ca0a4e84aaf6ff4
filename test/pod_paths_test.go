package test

import (
	"go/ast"
	"maps"
	"slices"
	"testing"
)

// podPaths are the folders whose code opens paths that a pod can write to, or that a pod can replace: logs, termination
// messages, volumes, files that containers mount, and directories of plugins.
var podPaths = []string{
	"internal/pod/status", "internal/pod/steps", "internal/record/podlog", "internal/node/logrotate",
	"internal/node/stats", "internal/api/logs", "internal/api/files", "internal/base/diskusage",
	"internal/base/archive", "internal/node/gc", "internal/api/https", "internal/runtime/shim/logger",
	"internal/runtime/logpath", "internal/docker/dockerlog",
}

// opens are the functions that open a file of any type. Opening a FIFO waits for its other end for ever.
var opens = map[string][]string{
	"os":   {"Open", "OpenFile", "ReadFile", "Create", "WriteFile"},
	"unix": {"Open", "Openat"},
}

// plainOpens lists the files of these folders that call such a function, and why that is safe.
var plainOpens = map[string]string{
	"internal/pod/steps/dra/checkpoint.go":             "The file is the agent's own, in its root directory.",
	"internal/pod/steps/image/credential/keyring.go":   "The administrator configures the path.",
	"internal/pod/steps/image/credential/provider.go":  "The administrator configures the path.",
	"internal/pod/steps/cgroup/node.go":                "The file is in /proc/sys.",
	"internal/pod/steps/cgroup/hierarchy/kill.go":      "The file is in a cgroup file system.",
	"internal/pod/steps/userns/userns.go":              "The file is the agent's own, in the directory of a pod.",
	"internal/pod/steps/userns/probe.go":               "The file is in /proc.",
	"internal/pod/steps/allocation/takeover.go":        "The kubelet's or the agent's own file, in the root directory.",
	"internal/pod/steps/resize/takeover.go":            "The kubelet's or the agent's own file, in the root directory.",
	"internal/pod/steps/volume/emptydir/emptydir.go":   "The file is in /sys.",
	"internal/pod/steps/volume/holder.go":              "The files are in /proc.",
	"internal/pod/steps/volume/loop.go":                "The files are in /sys, or are devices that it lists.",
	"internal/pod/steps/volume/iscsi/admin.go":         "The files are in /sys.",
	"internal/pod/steps/volume/scsi/scsi.go":           "The files are in /sys.",
	"internal/pod/steps/volume/csi/data.go":            "The file is beside the mount, where no container sees it.",
	"internal/pod/steps/volume/csi/layout.go":          "The file is beside the mount, where no container sees it.",
	"internal/pod/steps/volume/stage.go":               "The files are beside the mount, where no container sees them.",
	"internal/pod/steps/volume/subpath.go":             "O_EXCL makes a new file where no container sees it.",
	"internal/pod/steps/volume/ownership/ownership.go": "It opens with O_PATH, or a directory.",
	"internal/pod/steps/poddir/dns.go":                 "The administrator configures the path.",
	"internal/pod/steps/poddir/files.go":               "O_EXCL makes one file. The administrator chose the other.",
	"internal/pod/steps/poddir/poddir.go":              "The administrator configures the path.",
	"internal/pod/steps/container/host.go":             "The files are in /proc.",
	"internal/node/stats/sample.go":                    "The files are in /proc and in cgroup file systems.",
	"internal/node/stats/process.go":                   "The file is in /proc.",
	"internal/node/stats/stall/stall.go":               "The files are in /proc.",
	"internal/node/stats/host.go":                      "The files are in /proc and /sys.",
	"internal/node/stats/filesystem.go":                "O_NONBLOCK does not wait for the writer of a FIFO.",
	"internal/api/files/files.go":                      "The files are in /proc.",
	"internal/base/diskusage/diskusage.go":             "O_DIRECTORY refuses a FIFO.",
	"internal/base/archive/pack.go":                    "O_NONBLOCK does not wait at a FIFO, and the type is checked.",
	"internal/runtime/shim/logger/copy.go":             "O_NONBLOCK does not wait for the reader of the FIFO.",
	"internal/runtime/shim/logger/stream.go":           "O_RDWR and O_NONBLOCK do not wait for the FIFO's other end.",
	"internal/runtime/shim/logger/spool.go":            "The file is the shim's own, where no container sees it.",
	"internal/docker/dockerlog/source.go":              "O_NONBLOCK does not wait for the writer of a FIFO.",
}

// selects calls f for each selector PACKAGE.NAME in a file.
func selects(s source, f func(pkg, name string)) {
	ast.Inspect(s.file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok {
				f(x.Name, sel.Sel.Name)
			}
		}
		return true
	})
}

func TestPathsOfPodsAreOpenedSafely(t *testing.T) {
	all, _ := load(t)
	needed := map[string]bool{}
	for _, s := range all {
		if isTest(s) || !slices.ContainsFunc(podPaths, func(folder string) bool { return within(s.dir, folder) }) {
			continue
		}
		selects(s, func(pkg, name string) {
			if !slices.Contains(opens[pkg], name) {
				return
			}
			if needed[s.name] = true; plainOpens[s.name] == "" {
				t.Errorf("%s calls %s.%s: a pod may have put a FIFO there; use package safepath, or say in "+
					"plainOpens why it is safe", s.name, pkg, name)
			}
		})
	}
	for _, name := range slices.Sorted(maps.Keys(plainOpens)) {
		if !needed[name] {
			t.Errorf("%s opens no file by itself now: remove its line from plainOpens", name)
		}
	}
}

// sharedLoops lists the files below internal/pod that start goroutines without package guard. A panic in one of them
// ends the agent.
var sharedLoops = map[string]string{
	"internal/pod/source/source.go":                      "Its goroutines read the sources of all pods.",
	"internal/pod/source/merge.go":                       "The goroutine keeps the identities of all pods.",
	"internal/pod/source/content/directory/directory.go": "Its goroutines read all manifests and sync their copies.",
	"internal/pod/pleg/pleg.go":                          "Its goroutines follow the runtime.",
	"internal/pod/steps/probe/run.go":                    "The loop is of all probes; each probe runs in a guard.Call.",
	"internal/pod/steps/resize/run.go":                   "The goroutine keeps the sizes of all pods.",
	"internal/pod/steps/dra/drivers.go":                  "Its goroutines follow the drivers.",
	"internal/pod/steps/volume/csi/run.go":               "Its goroutines serve the volumes of all pods.",
	"internal/pod/steps/volume/csi/driver/registry.go":   "Its goroutines follow the drivers.",
	"internal/pod/steps/volume/csi/driver/objects.go":    "The goroutine waits for the objects of a driver.",
	"internal/pod/steps/volume/payload/run.go":           "Its goroutines update the volumes of all pods.",
	"internal/pod/steps/device/supply/run.go":            "Its goroutines follow the device plugins.",
	"internal/pod/steps/claim/claim.go":                  "Its goroutines remove the volumes of claims.",
}

func TestGoroutinesOfPodsAreGuarded(t *testing.T) {
	all, _ := load(t)
	needed := map[string]bool{}
	for _, s := range all {
		if isTest(s) || !within(s.dir, "internal/pod") {
			continue
		}
		bare := func(what string) {
			if needed[s.name] = true; sharedLoops[s.name] == "" {
				t.Errorf("%s uses %s: a panic there ends the agent; use package guard, or say in sharedLoops why the"+
					" goroutine belongs to no pod", s.name, what)
			}
		}
		selects(s, func(pkg, name string) {
			if pkg == "sync" && name == "WaitGroup" || pkg == "errgroup" && (name == "Group" || name == "WithContext") {
				bare(pkg + "." + name)
			}
		})
		ast.Inspect(s.file, func(n ast.Node) bool {
			if _, ok := n.(*ast.GoStmt); ok {
				bare("a go statement")
			}
			return true
		})
	}
	for _, name := range slices.Sorted(maps.Keys(sharedLoops)) {
		if !needed[name] {
			t.Errorf("%s starts no goroutine without package guard now: remove its line from sharedLoops", name)
		}
	}
}
