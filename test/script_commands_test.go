package test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/base/inotify"
	"github.com/berth-run/berth/internal/base/pausetest"
	"github.com/berth-run/berth/internal/base/unixsocket"
	"github.com/berth-run/berth/internal/model/pod"
)

// commands returns the commands that scripts have besides testscript's own. Every await command fails the script
// when its condition does not hold within the flag -patience. POD is NAME or NAMESPACE/NAME. FILE is a file of the
// script.
//
// The agent and its command line:
//
//	agent start|stop|kill|crash|freeze|thaw [FLAG...]
//	                            starts an agent that appends its log to agent.log, and waits until it answers;
//	                            ends it with SIGTERM; ends it with SIGKILL; starts an agent and waits until a panic
//	                            has ended it; stops it with SIGSTOP, and continues it
//	agent-under [PROGRAM ARGS...]
//	                            makes this program start the agents from now on, with the agent's command line as its
//	                            last arguments; without arguments they start directly
//	own-mounts                  gives agents that start from now on a mount namespace with a shared root and without
//	                            the mounts of the command hang
//	berth ARGS...               runs berth with the script's root directory; "! berth" expects a failure
//	exits CODE ARGS...          runs berth likewise and checks its exit status
//	refused REGEXP ARGS...      runs berth likewise, and wants an error that matches and a next step
//	terminal COLSxROWS [-slow] [-dialog FILE] ARGS...
//	                            runs berth on a terminal, which grows by a column and a row after every output, and
//	                            every two seconds without one. Writes what the terminal showed to the file
//	                            "screen". The lines of FILE alternate: a text to wait for, then the input to type
//	manifest FILE               moves FILE into the manifest directory with one rename, after it has replaced
//	                            $ROOT, $IMAGE, $WORK and $REGISTRY in it
//	serve-manifests FILE|fault CODE|fault unreachable
//	                            serves FILE at the static pod URL from now on; answers with a status code and nothing
//	                            else; closes each connection without an answer
//	https-manifests FILE        makes agents that start from now on fetch the same from $MANIFESTS, over HTTPS. Writes
//	                            the certificate, whose authority the machine does not know, to FILE
//	collect-spans               makes agents that start from now on send their traces to a collector
//	service-manager DURATION    runs agents that start from now on under a service manager (sd_notify) with this
//	                            watchdog time
//
// Waiting for pods and for the agent:
//
//	await POD CONDITION         waits for Ready, Running, Succeeded, Failed, Gone, NotReady, restarts=N or
//	                            restarts>=N, for a reason of the pod or a container, or for the first words of a
//	                            waiting container's message
//	await-event POD REASON [TEXT]
//	                            waits for an event with TEXT in its message, or with TEXT as its field path
//	await-problem FILE [TEXT]   waits until the agent's status lists a problem of the manifest FILE
//	await-node STATUS           waits until the node's Ready condition is True or False
//	block PAGE REGEXP           runs the first block of commands in a page that matches, as it is written there
//	example NAME                writes examples/NAME to the script's directory, with $PORT, $PORT2 and $REGISTRY in
//	                            the place of its host ports and its registry
//	debian-image SET NAME PROGRAM
//	                            loads an image of a set of Debian packages (hack/unpack.sh) that runs PROGRAM
//	await-log POD [NAME] TEXT   waits until the container has printed TEXT
//	await-calm POD              waits until no resize is pending or in progress
//	await-health POD ID HEALTH  waits until the pod's status shows this health of a device
//	await-metric LINE           waits until the agent's metrics contain this line
//	await-notify TEXT           waits until an agent has sent TEXT to its service manager
//	await-spans POD             waits until the collector has every span of the pod's timeline
//	await-span 'NAME > NAME...' waits until the collector has a span with these parents, from the root down
//	await-image-gone NAME       waits until the agent has no image of this name
//	pod-resources FILE          writes the devices that the PodResources API lists to FILE
//
// Other waiting:
//
//	within DURATION COMMAND...  runs another of these commands and fails if it takes longer. The duration is for a
//	                            quiet machine: it grows as much as a fixed piece of work takes longer meanwhile
//	until SHELL                 repeats a line of sh until it succeeds; "stdout" then checks its last output
//	await-output REGEXP COMMAND...
//	                            repeats a program of the host until its output matches
//	await-url URL               waits until a GET succeeds
//	connections ADDRESS MOST PATH
//	                            opens as many connections as one client may have, and fails unless the server closes
//	                            one more, and answers to the path for another client
//	await-same FILE WANTED      waits until both files have the same content
//
// The web page:
//
//	page stop|restart POD       asks for it as the page of "berth ui" does
//	page shell POD CONTAINER LINE WANT
//	                            types a line into a shell of the page, and waits for output that contains WANT
//
// The runtime and its containers:
//
//	runtime kill|start|freeze|thaw|unplug|plug
//	                            acts on the external runtime; unplug removes its pod network, plug restores it
//	faulty-runtime start        puts a proxy between the external runtime and agents that start from now on
//	faulty-runtime METHOD fail|empty|lost|unknown|no-address|other-network [N]
//	                            changes the next N answers of a CRI method, or all until "heal": an error; a message
//	                            without fields; none until the deadline, although the runtime carries the call out;
//	                            containers in unknown state; a sandbox without an address, or on the host's network
//	faulty-runtime await        waits until all faults have occurred N times
//	faulty-runtime heal         ends all faults
//	await-runtime               waits until the runtime's socket answers
//	run-pod NAME                makes a pod of one container with the runtime's own calls
//	second-sandbox POD          makes one more sandbox of the pod likewise
//	containers FILE             writes the runtime's containers to FILE: id, pod, name, attempt, state
//	await-ended POD             waits until the runtime has no container of the pod
//	await-containers POD N [S]  waits until the runtime has N containers of the pod, all in the state S
//	await-sandboxes POD N       waits until the runtime has N sandboxes of the pod, ready or not
//	kill-process [-TERM] POD [NAME]
//	                            sends SIGKILL or SIGTERM to the process of the container, or of the sandbox
//	process POD [NAME]          sets $PID to the process of the container, or of the sandbox
//	lose POD                    removes the pod's exited containers from the runtime without the agent
//	lose-containers POD         removes all its containers from the runtime without the agent
//	reboot                      ends the agent and the pods like a reboot: only files on disk remain
//
// Cgroups. The pod is named by POD, or its cgroup by /PATH below $CGROUP, which may be a pattern; "-" stands for the
// pod's own cgroup instead of a container's:
//
//	cgroup POD|/PATH CONTAINER|- cpus|mems|shares|quota|memory|pids VALUE
//	                            changes a value without the agent
//	await-cgroup POD|/PATH CONTAINER|- cpus|mems|shares|quota|memory|pids VALUE
//	                            waits until the cgroup has this value
//	await-limit POD CONTAINER|- cpu|memory VALUE
//	                            waits for this limit of CPU (µs in 100 ms) or memory (bytes)
//	make-cgroup NAME, remove-cgroup NAME
//	                            makes or removes a cgroup below $CGROUP
//	await-cgroup-gone NAME      waits until this cgroup does not exist
//	vanish POD                  removes the pod's cgroup while its processes run
//
// Images:
//
//	serve-registry [USER PASSWORD | unknown-authority]
//	                            starts a registry at $REGISTRY with the workload as team/app:1, and team/other:1; or
//	                            one with HTTPS and an authority that the machine does not know
//	stall-registry, heal-registry
//	                            stops in the middle of every answer with team/other:1; continues them
//	trickle-registry            sends answers with team/other:1 slowly until heal-registry
//	push-hostile DIR            pushes team/hostile:1, whose layers try to write to DIR on the host
//	interrupts DURATION         deletes pods while they pull from a registry that never answers, and fails if
//	                            even the quickest of these pulls ended later than that
//
// Security:
//
//	owned PAGE [FAULT]          compares owners and modes of all files below $ROOT, and of this agent's files in /run,
//	                            with the tables of a page; with FAULT, a file whose line begins with it must be the
//	                            only one that differs
//
// Networks:
//
//	cni up|down|gone            writes the CNI configuration of a network with addresses 10.204.N.0/24 into the
//	                            script's net.d; removes the file; removes the directory
//	cni await other|built-in|none|TEXT
//	                            waits until new pods get this network from the embedded runtime, or one with
//	                            TEXT in its configuration
//	cni end POD                 deletes the pod and waits until nothing of it is left on its network
//
// Devices and disks:
//
//	device-plugin start RESOURCE DEVICES [numa=N] [preferred] [prestart] [cdi=KIND] [mount=DIR] [found]
//	                            starts a sample device plugin, which registers with every new agent; with
//	                            "found" it waits in plugins_registry until the agent discovers it
//	device-plugin stop RESOURCE ends it as if it was killed
//	device-plugin sick|heal RESOURCE ID
//	                            changes the health of a device
//	device-plugin hang|answer|refuse|accept RESOURCE METHOD
//	                            makes calls of a method hang or fail, or ends that
//	device-plugin await RESOURCE METHOD IDS
//	                            waits until the agent has made this call
//	device-plugin calls RESOURCE FILE
//	                            writes the calls so far to FILE, in order
//	cdi-spec FILE               installs a CDI specification; $CDI in it, and from now on, is its vendor
//	loop NAME                   makes a block device of 16 MiB, $NAME, until the script ends
//	reset-at-end DIR FILE       ends the agent on the root directory DIR when the script ends, and resets DIR with the
//	                            configuration FILE
//	long-root                   moves the root directory to a path of more than 150 bytes; from now on it is $ROOT,
//	                            and $SOCKETS is the directory of the runtime's sockets
//	mount bind FROM DIR, mount tmpfs DIR, mount ext4 SIZE DIR
//	                            mounts a directory, a tmpfs or a file system of its own until the script ends
//	reset-beside DIR COMMAND... runs berth reset with the file config.yaml, stops it as soon as it deletes a file in
//	                            DIR, runs the command, and lets the reset end
//	faulty                      makes agents that start from now on panic at the places that the file "faults" lists:
//	                            lines of "PLACE NAMESPACE/NAME" (guard.Point)
//	hang DIR, unhang DIR        mounts a file system on DIR, which may be a pattern, that never answers; unmounts it
//	disk-root SIZE [ext4|xfs]   gives the root directory a file system of its own, with a type one with project quotas
//	small-disk DIR, fill-disk DIR, free-disk DIR
//	                            mounts a file system of 1 MiB, fills it, frees it again
//
// Variables: $ROOT is the root directory, $CGROUP its cgroup, $CONFIG the configuration file, $IMAGE the workload's
// image, $ARCHIVE its archive, $REGISTRY a registry that never answers, $PLACE a number that no other script has at the
// same time, and $PORT and $PORT2 host ports that no other script uses.
//
// Conditions: [embedded], [containerd] and [docker] name the runtime. [old-docker] is the machine's own Engine, not the
// one of make docker-latest. [userns], [apparmor], [kmsg] and [cgroup2] ask whether the kernel has the feature. [vm]
// holds in the machines of make vmtest, which a script may change at will. [systemd] holds in the one whose init is
// systemd.
func (h *harness) commands() map[string]func(*testscript.TestScript, bool, []string) {
	positive := func(usage string, least, most int,
		f func(*testscript.TestScript, []string)) func(*testscript.TestScript, bool, []string) {
		return func(ts *testscript.TestScript, neg bool, args []string) {
			if neg || len(args) < least || len(args) > most {
				ts.Fatalf("usage: %s", usage)
			}
			f(ts, args)
		}
	}
	const many = 1 << 10
	var commands map[string]func(*testscript.TestScript, bool, []string)
	commands = map[string]func(*testscript.TestScript, bool, []string){
		"berth":         h.berth,
		"agent":         positive("agent start|stop|kill|leave|crash [FLAG...]", 1, many, h.agent),
		"build-shim":    positive("build-shim FILE", 1, 1, buildShim),
		"own-mounts":    positive("own-mounts", 0, 0, ownMounts),
		"agent-under":   positive("agent-under [PROGRAM ARGS...]", 0, many, agentUnder),
		"exits":         positive("exits CODE ARGS...", 2, many, h.exits),
		"refused":       positive("refused REGEXP ARGS...", 2, many, h.refused),
		"await":         positive("await POD CONDITION", 2, 2, h.await),
		"await-event":   positive("await-event POD REASON [TEXT]", 2, 3, h.awaitEvent),
		"await-problem": positive("await-problem FILE [TEXT]", 1, 2, h.awaitProblem),
		"await-node":    positive("await-node STATUS", 1, 1, h.awaitNode),
		"await-log":     positive("await-log POD [NAME] TEXT", 2, 3, h.awaitLog),
		"await-limit":   positive("await-limit POD CONTAINER|- cpu|memory VALUE", 4, 4, h.awaitLimit),
		"await-cgroup": positive("await-cgroup POD|/PATH CONTAINER|- cpus|mems|shares|quota|memory|pids VALUE", 4,
			4, awaitCgroup),
		"cgroup": positive("cgroup POD|/PATH CONTAINER|- cpus|mems|shares|quota|memory|pids VALUE", 4, 4,
			setCgroup),
		"make-cgroup":       positive("make-cgroup NAME", 1, 1, makeCgroup),
		"remove-cgroup":     positive("remove-cgroup NAME", 1, 1, removeCgroup),
		"await-cgroup-gone": positive("await-cgroup-gone NAME", 1, 1, awaitCgroupGone),
		"vanish":            positive("vanish POD", 1, 1, vanish),
		"await-metric":      positive("await-metric LINE", 1, 1, awaitMetric),
		"await-calm":        positive("await-calm POD", 1, 1, h.awaitCalm),
		"await-ended":       positive("await-ended POD", 1, 1, h.awaitEnded),
		"await-containers":  positive("await-containers POD N [STATE]", 2, 3, h.awaitContainers),
		"await-sandboxes":   positive("await-sandboxes POD N", 2, 2, h.awaitSandboxes),
		"await-same":        positive("await-same FILE WANTED", 2, 2, awaitSame),
		"cni":               positive("cni up|down|gone|await|end", 1, 2, h.cni),
		"vpn":               positive("vpn RANGE|FILE|down", 1, 1, h.vpn),
		"containers":        positive("containers FILE", 1, 1, h.containers),
		"manifest":          positive("manifest FILE", 1, 1, h.manifest),
		"kill-process":      positive("kill-process [-TERM] POD [NAME]", 1, 3, h.killProcess),
		"lose":              positive("lose POD", 1, 1, h.lose),
		"process":           positive("process POD [NAME]", 1, 2, h.process),
		"interrupts":        positive("interrupts DURATION", 1, 1, h.interrupts),
		"within": positive("within DURATION COMMAND...", 2, many, func(ts *testscript.TestScript, args []string) {
			limit, err := time.ParseDuration(args[0])
			ts.Check(err)
			if inVM() {
				// Two CPUs emulate eight there, so most of the time is the emulation's. The tests of
				// the package that waits check that the agent's own waits are short enough.
				limit *= 5
			}
			command, ok := commands[args[1]]
			if !ok {
				ts.Fatalf("within %s: unknown command %q; see harness.commands", args[0], args[1])
			}
			took, slowdown := machinePace.during(func() { command(ts, false, args[2:]) })
			if took > time.Duration(float64(limit)*slowdown) {
				ts.Fatalf("%s took %v on a machine that is %.1f times slower than at best", strings.Join(args[1:], " "),
					took, slowdown)
			}
			ts.Logf("it took %v; the machine is %.1f times slower than at best", took, slowdown)
		}),
		"serve-registry":   positive("serve-registry [USER PASSWORD | unknown-authority]", 0, 2, h.serveRegistry),
		"stall-registry":   positive("stall-registry", 0, 0, h.stallRegistry),
		"trickle-registry": positive("trickle-registry", 0, 0, h.trickleRegistry),
		"heal-registry":    positive("heal-registry", 0, 0, h.healRegistry),
		"push-hostile":     positive("push-hostile DIR", 1, 1, h.pushHostile),
		"loop":             positive("loop NAME", 1, 1, loop),
		"await-image-gone": positive("await-image-gone NAME", 1, 1, h.awaitImageGone),
		"serve-manifests":  positive("serve-manifests FILE|fault CODE|fault unreachable", 1, 2, h.serveManifests),
		"https-manifests":  positive("https-manifests FILE", 1, 1, httpsManifests),
		"await-runtime":    positive("await-runtime", 0, 0, h.awaitRuntime),
		"run-pod":          positive("run-pod NAME", 1, 1, h.runPod),
		"second-sandbox":   positive("second-sandbox POD", 1, 1, h.secondSandbox),
		"faulty-runtime":   positive("faulty-runtime start|heal|await|METHOD FAULT [N]", 1, 3, h.faultyRuntime),
		"lose-containers":  positive("lose-containers POD", 1, 1, h.loseContainers),
		"reboot":           positive("reboot", 0, 0, h.reboot),
		"collect-spans":    positive("collect-spans", 0, 0, h.startCollector),
		"await-spans":      positive("await-spans POD", 1, 1, h.awaitSpans),
		"await-span":       positive("await-span 'NAME > NAME...'", 1, 1, h.awaitSpan),
		"service-manager":  positive("service-manager DURATION", 1, 1, h.startServiceManager),
		"await-notify":     positive("await-notify TEXT", 1, 1, h.awaitNotify),
		"device-plugin":    positive("device-plugin ACTION RESOURCE [ARG...]", 2, many, h.devicePlugin),
		"await-health":     positive("await-health POD ID HEALTH", 3, 3, h.awaitHealth),
		"pod-resources":    positive("pod-resources FILE", 1, 1, h.podResources),
		"cdi-spec":         positive("cdi-spec FILE", 1, 1, h.cdiSpec),
		"mount":            positive("mount bind FROM DIR | mount tmpfs DIR | mount ext4 SIZE DIR", 2, 3, mountAt),
		"long-root":        positive("long-root", 0, 0, longRoot),
		"reset-at-end":     positive("reset-at-end DIR FILE", 2, 2, h.resetAtEnd),
		"reset-beside":     positive("reset-beside DIR COMMAND...", 2, many, h.resetBeside),
		"small-disk":       positive("small-disk DIR", 1, 1, smallDisk),
		"disk-root":        positive("disk-root SIZE [ext4|xfs]", 1, 2, diskRoot),
		"fill-disk":        positive("fill-disk DIR", 1, 1, fillDisk),
		"faulty":           positive("faulty", 0, 0, h.faulty),
		"hang":             positive("hang DIR", 1, 1, hang),
		"unhang":           positive("unhang DIR", 1, 1, unhang),
		"free-disk":        positive("free-disk DIR", 1, 1, freeDisk),
		"until":            positive("until SHELL", 1, 1, until),
		"block":            positive("block PAGE REGEXP", 2, 2, h.block),
		"example":          positive("example NAME", 1, 1, example),
		"debian-image":     positive("debian-image SET NAME PROGRAM", 3, 3, h.debianImage),
		"await-output":     positive("await-output REGEXP COMMAND...", 2, many, awaitOutput),
		"await-url":        positive("await-url URL", 1, 1, awaitURL),
		"upload":           positive("upload URL", 1, 1, upload),
		"connections":      positive("connections ADDRESS MOST PATH", 3, 3, connections),
		"page":             positive("page stop|restart|shell POD [CONTAINER LINE WANT]", 2, 5, h.page),
		"runtime":          positive("runtime kill|start|freeze|thaw|unplug|plug", 1, 1, h.runtimeCommand),
		"owned":            positive("owned PAGE [FAULT]", 1, 2, h.owned),
		"terminal":         positive("terminal COLSxROWS [-slow] [-dialog FILE] ARGS...", 2, many, h.terminal),
	}
	return commands
}

// buildShim builds the shim of internal/runtime/testdata/ownshim. The file appears with its whole content.
func buildShim(ts *testscript.TestScript, args []string) {
	file := ts.MkAbs(args[0])
	out, err := exec.Command("go", "build", "-o", file+".new",
		"../internal/runtime/testdata/ownshim").CombinedOutput()
	if err != nil {
		ts.Fatalf("build shim: %v\n%s", err, out)
	}
	ts.Check(os.Rename(file+".new", file))
}

// agentUnder chooses the program that starts agents from now on.
func agentUnder(ts *testscript.TestScript, args []string) {
	ts.Value(daemonKey{}).(*daemon).under = args
}

// until repeats a shell command until it succeeds. The commands stdout and stderr check its last output.
func until(ts *testscript.TestScript, args []string) {
	eventuallyEvery(ts, 100*time.Millisecond, func() (bool, any) {
		err := ts.Exec("sh", "-c", args[0])
		return err == nil, args[0]
	})
}

func awaitOutput(ts *testscript.TestScript, args []string) {
	match, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	eventually(ts, func() (bool, any) {
		cmd := exec.Command(args[1], args[2:]...)
		cmd.Dir = ts.MkAbs(".")
		out, err := cmd.CombinedOutput()
		return err == nil && match.Match(out), fmt.Sprintf("%s %v", out, err)
	})
}

func awaitURL(ts *testscript.TestScript, args []string) {
	eventually(ts, func() (bool, any) {
		r, err := http.Get(args[0])
		if err != nil {
			return false, err
		}
		return r.StatusCode == http.StatusOK, errors.Join(fmt.Errorf("GET %s: %s", args[0], r.Status), r.Body.Close())
	})
}

// exits runs berth and checks its exit status.
func (h *harness) exits(ts *testscript.TestScript, args []string) {
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(h.bin, append([]string{"--root-dir", rootOf(ts)}, args[1:]...)...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit status %d, want %d", got, want)
	}
}

func (h *harness) berth(ts *testscript.TestScript, neg bool, args []string) {
	err := ts.Exec(h.bin, append([]string{"--root-dir", rootOf(ts)}, args...)...)
	switch {
	case err != nil && !neg:
		ts.Fatalf("berth %s: %v", strings.Join(args, " "), err)
	case err == nil && neg:
		ts.Fatalf("berth %s succeeded", strings.Join(args, " "))
	}
}

// eventually polls a condition that has no event to wait for, and fails the script when patience is over.
func eventually(ts *testscript.TestScript, poll func() (ok bool, seen any)) {
	eventuallyEvery(ts, 20*time.Millisecond, poll)
}

// eventuallyEvery is eventually with a longer pause.
func eventuallyEvery(ts *testscript.TestScript, pause time.Duration, poll func() (ok bool, seen any)) {
	var seen any
	if !repeat(pause, patience, func() (ok bool) {
		ok, seen = poll()
		return ok
	}) {
		fail(ts, "condition not met after %v; last seen: %+v", patience, seen)
	}
}

// repeat calls f until it returns true, with a pause after each call. It returns false if f has not after this time. A
// call that takes long has a longer pause, because it uses CPU time that the agent and other tests need.
func repeat(pause, most time.Duration, f func() bool) bool {
	for begin := time.Now(); ; {
		called := time.Now()
		if f() {
			return true
		}
		if time.Since(begin) > most {
			return false
		}
		time.Sleep(max(pause, 2*time.Since(called)))
	}
}

func (h *harness) awaitProblem(ts *testscript.TestScript, args []string) {
	eventually(ts, func() (bool, any) {
		status, err := clientOf(ts).Status(context.Background())
		ts.Check(err)
		return slices.ContainsFunc(status.Problems, func(p api.Problem) bool {
			return filepath.Base(p.Origin) == args[0] && (len(args) == 1 || strings.Contains(p.Message, args[1]))
		}), status.Problems
	})
}

func (h *harness) awaitNode(ts *testscript.TestScript, args []string) {
	eventually(ts, func() (bool, any) {
		status, err := clientOf(ts).Status(context.Background())
		ts.Check(err)
		return slices.ContainsFunc(status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && string(c.Status) == args[0]
		}), status.Conditions
	})
}

func (h *harness) awaitLog(ts *testscript.TestScript, args []string) {
	var options client.LogOptions
	if len(args) == 3 {
		options.Container = args[1]
	}
	eventually(ts, func() (bool, any) {
		var log strings.Builder
		err := clientOf(ts).Pod(key(args[0])).Logs(context.Background(), options, &log)
		return err == nil && strings.Contains(log.String(), args[len(args)-1]), log.String()
	})
}

func awaitSame(ts *testscript.TestScript, args []string) {
	want := ts.ReadFile(args[1])
	eventually(ts, func() (bool, any) {
		text, err := os.ReadFile(ts.MkAbs(args[0]))
		return err == nil && string(text) == want, string(text)
	})
}

// awaitEnded waits until the runtime has no container of a pod.
func (h *harness) awaitEnded(ts *testscript.TestScript, args []string) {
	h.awaitContainers(ts, []string{args[0], "0"})
}

func (h *harness) awaitContainers(ts *testscript.TestScript, args []string) {
	eventually(ts, func() (bool, any) {
		left := slices.DeleteFunc(h.list(ts), func(line string) bool {
			return !strings.Contains(line, " "+args[0]+" ") ||
				len(args) == 3 && !strings.HasSuffix(line, "_"+args[2]+"\n")
		})
		return strconv.Itoa(len(left)) == args[1], left
	})
}

func (h *harness) awaitEvent(ts *testscript.TestScript, args []string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	k := key(args[0])
	var seen []string
	for change, err := range clientOf(ts).WatchEvents(ctx, client.Select{Namespace: k.Namespace}) {
		if err != nil {
			break
		}
		e := change.Object
		if change.Synced || e.InvolvedObject.Name != k.Name {
			continue
		}
		if e.Reason == args[1] &&
			(len(args) == 2 || strings.Contains(e.Message, args[2]) || e.InvolvedObject.FieldPath == args[2]) {
			return
		}
		seen = append(seen, e.Reason+": "+e.Message)
	}
	fail(ts, "no event %v of %s; seen:\n%s", args[1:], args[0], strings.Join(seen, "\n"))
}

// lose removes a pod's exited containers from the runtime.
func (h *harness) lose(ts *testscript.TestScript, args []string) {
	runtime, done := h.dial(ts)
	defer done()
	ctx := context.Background()
	all, err := runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		LabelSelector: map[string]string{pod.LabelPodName: args[0]},
		State:         &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_EXITED},
	}})
	ts.Check(err)
	for _, c := range all.Containers {
		_, err := runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: c.Id})
		ts.Check(err)
	}
}

// killProcess sends a signal to the process of a pod's container or sandbox.
func (h *harness) killProcess(ts *testscript.TestScript, args []string) {
	runtime, done := h.dial(ts)
	defer done()
	signal := unix.SIGKILL
	if args[0] == "-TERM" {
		signal, args = unix.SIGTERM, args[1:]
	}
	ts.Check(processes{runtime}.signal(context.Background(), labelsOf(args), signal))
}

// labelsOf returns the labels of a pod's container, or of its sandbox if there is no second name.
func labelsOf(names []string) map[string]string {
	labels := map[string]string{pod.LabelPodName: names[0]}
	if len(names) == 2 {
		labels[pod.LabelContainerName] = names[1]
	}
	return labels
}

// processes finds the processes of sandboxes and containers in the runtime's verbose status.
type processes struct {
	runtimeapi.RuntimeServiceClient
}

func (p processes) signal(ctx context.Context, labels map[string]string, signal unix.Signal) error {
	process, err := p.find(ctx, labels)
	if err != nil {
		return err
	}
	return unix.Kill(process, signal)
}

// find returns the process of the one running container that has the labels, or of the one ready sandbox if no
// container is named.
func (p processes) find(ctx context.Context, labels map[string]string) (int, error) {
	if labels[pod.LabelContainerName] == "" {
		return p.sandbox(ctx, labels)
	}
	running, err := p.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
		LabelSelector: labels,
		State:         &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
	}})
	if err != nil {
		return 0, err
	}
	if len(running.Containers) != 1 {
		return 0, fmt.Errorf("%v: %d running containers", labels, len(running.Containers))
	}
	s, err := p.ContainerStatus(ctx,
		&runtimeapi.ContainerStatusRequest{ContainerId: running.Containers[0].Id, Verbose: true})
	if err != nil {
		return 0, err
	}
	return processOf(s.Info)
}

func (p processes) sandbox(ctx context.Context, labels map[string]string) (int, error) {
	boxes, err := p.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
		LabelSelector: labels, State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY},
	}})
	if err != nil {
		return 0, err
	}
	if len(boxes.Items) != 1 {
		return 0, fmt.Errorf("%v: %d ready sandboxes", labels, len(boxes.Items))
	}
	s, err := p.PodSandboxStatus(ctx,
		&runtimeapi.PodSandboxStatusRequest{PodSandboxId: boxes.Items[0].Id, Verbose: true})
	if err != nil {
		return 0, err
	}
	return processOf(s.Info)
}

func processOf(info map[string]string) (int, error) {
	var process struct{ Pid int }
	if err := json.Unmarshal([]byte(info["info"]), &process); err != nil {
		return 0, err
	}
	if process.Pid < 2 {
		return 0, fmt.Errorf("the runtime's status has no process: %s", info["info"])
	}
	return process.Pid, nil
}

// process sets $PID to the process of a container or sandbox, so that the script can inspect it from the host. It waits
// until the process runs its own program: a container has started, and its pod may be Ready, a moment before that.
// Until then the name of the process is that of runc.
func (h *harness) process(ts *testscript.TestScript, args []string) {
	runtime, done := h.dial(ts)
	defer done()
	var found int
	eventually(ts, func() (bool, any) {
		var err error
		found, err = processes{runtime}.find(context.Background(), labelsOf(args))
		return err == nil, err
	})
	ts.Setenv("PID", strconv.Itoa(found))
	eventually(ts, func() (bool, any) {
		name, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(found), "comm"))
		runs := err == nil && !strings.HasPrefix(string(name), "runc:[")
		return runs, fmt.Sprintf("process %d: %s %v", found, name, err)
	})
}

// registry accepts connections and never answers.
type registry struct {
	listener net.Listener
	requests chan struct{} // one for each connection that has sent something
}

func newRegistry() (*registry, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &registry{listener: l, requests: make(chan struct{}, 100)}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if _, err := c.Read(make([]byte, 1)); err != nil {
					return
				}
				r.requests <- struct{}{}
				_, _ = io.Copy(io.Discard, c)
			}()
		}
	}()
	return r, nil
}

// interrupts measures how soon a pull ends after its pod was deleted. It takes the quickest of five, because a busy
// machine is not the agent's fault.
func (h *harness) interrupts(ts *testscript.TestScript, args []string) {
	limit, err := time.ParseDuration(args[0])
	ts.Check(err)
	r := ts.Value(daemonKey{}).(*daemon).registry
	best, ctx := patience, context.Background()
	for i := range 5 {
		name := fmt.Sprint("pull", i)
		manifest := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": %q},
			"spec": {"containers": [{"name": "app", "image": "%s/none:%d"}]}}`, name, r.listener.Addr(), i)
		_, err := clientOf(ts).Apply(ctx, []byte(manifest), client.Apply{})
		ts.Check(err)
		wait(ts, r.requests, "pull of "+name)
		began := time.Now()
		_, err = clientOf(ts).Pod(key(name)).Delete(ctx, "", nil)
		ts.Check(err)
		h.await(ts, []string{name, "Gone"})
		best = min(best, pullEnded(ts, key(name)).Sub(began))
	}
	ts.Logf("the quickest pull ended %v after its pod was deleted", best)
	if best > limit {
		ts.Fatalf("the quickest pull ended %v after its pod was deleted, want at most %v", best, limit)
	}
}

// pullEnded returns when a pod's image pull ended, from the pod's timeline.
func pullEnded(ts *testscript.TestScript, k types.NamespacedName) (at time.Time) {
	line, err := clientOf(ts).Pod(k).Timeline(context.Background())
	ts.Check(err)
	for _, s := range line.Spans {
		if s.Name == "cri/PullImage" {
			at = s.End
		}
	}
	if at.IsZero() {
		ts.Fatalf("the timeline of %s has no pull that has ended: %+v", k, line.Spans)
	}
	return at
}

func wait(ts *testscript.TestScript, c <-chan struct{}, what string) {
	select {
	case <-c:
	case <-time.After(patience):
		ts.Fatalf("no %s", what)
	}
}

// manifests is the server behind a script's static pod URL.
type manifests struct {
	server *httptest.Server
	text   atomic.Pointer[string]
	fault  atomic.Pointer[string] // a status code, or "unreachable"; "" for none
}

func newManifests() *manifests {
	m := &manifests{}
	m.text.Store(new(""))
	m.fault.Store(new(""))
	m.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if fault := *m.fault.Load(); fault != "" {
			code, err := strconv.Atoi(fault)
			if err != nil {
				panic(http.ErrAbortHandler) // closes the connection without an answer
			}
			w.WriteHeader(code)
			return
		}
		text := *m.text.Load()
		if text == "" {
			text = "apiVersion: v1\nkind: PodList\nitems: []\n"
		}
		_, _ = w.Write([]byte(text))
	}))
	return m
}

func (h *harness) serveManifests(ts *testscript.TestScript, args []string) {
	m := ts.Value(daemonKey{}).(*daemon).manifests
	if args[0] == "fault" && len(args) == 2 {
		m.fault.Store(&args[1])
		return
	}
	text := ts.ReadFile(args[0])
	m.text.Store(&text)
	m.fault.Store(new(""))
}

// httpsManifests serves the static pod URL of the script with HTTPS for agents that start from now on. It writes the
// certificate, whose authority the machine does not know, to a file.
func httpsManifests(ts *testscript.TestScript, args []string) {
	d := ts.Value(daemonKey{}).(*daemon)
	server := httptest.NewUnstartedServer(d.manifests.server.Config.Handler)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // refused handshakes
	server.StartTLS()
	ts.Defer(server.Close)
	config := filepath.Join(d.root, "config.yaml")
	text, err := os.ReadFile(config)
	ts.Check(err)
	ts.Check(os.WriteFile(config, []byte(strings.Replace(string(text), d.manifests.server.URL, server.URL, 1)), 0o644))
	block := &pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), pem.EncodeToMemory(block), 0o644))
	ts.Setenv("MANIFESTS", server.URL+"/pods")
}

func smallDisk(ts *testscript.TestScript, args []string) {
	ts.Check(os.MkdirAll(args[0], 0o755))
	ts.Check(unix.Mount("tmpfs", args[0], "tmpfs", 0, "size=1m"))
	ts.Defer(func() { _ = unix.Unmount(args[0], unix.MNT_DETACH) })
}

// mountAt mounts a directory, a tmpfs or a new file system, and unmounts it at the end of the script if it is still
// there.
func mountAt(ts *testscript.TestScript, args []string) {
	dir, err := filepath.EvalSymlinks(args[len(args)-1])
	ts.Check(err)
	switch {
	case args[0] == "bind" && len(args) == 3:
		ts.Check(unix.Mount(ts.MkAbs(args[1]), dir, "", unix.MS_BIND, ""))
	case args[0] == "tmpfs" && len(args) == 2:
		ts.Check(unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=711"))
	case args[0] == "ext4" && len(args) == 3:
		mountDisk(ts, dir, args[1], "loop", "mkfs.ext4", "-q", "-m", "0")
	default:
		ts.Fatalf("usage: mount bind FROM DIR | mount tmpfs DIR | mount ext4 SIZE DIR")
	}
	ts.Defer(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}

// longRoot moves the files of the root directory to a directory deep below it.
func longRoot(ts *testscript.TestScript, _ []string) {
	d := ts.Value(daemonKey{}).(*daemon)
	files, err := os.ReadDir(d.root)
	ts.Check(err)
	root := filepath.Join(d.root, strings.Repeat(strings.Repeat("long", 10)+"/", 4))
	ts.Check(os.MkdirAll(root, 0o711))
	for _, f := range files {
		ts.Check(os.Rename(filepath.Join(d.root, f.Name()), filepath.Join(root, f.Name())))
	}
	config := filepath.Join(root, "config.yaml")
	text, err := os.ReadFile(config)
	ts.Check(err)
	ts.Check(os.WriteFile(config, []byte(strings.ReplaceAll(string(text), d.root, root)), 0o644))
	d.root = root
	ts.Setenv("ROOT", root)
	ts.Setenv("CONFIG", config)
	ts.Setenv("SOCKETS", unixsocket.Dir(filepath.Join(root, "runtime")))
}

// resetAtEnd removes everything of a further root directory from the machine when the script ends.
func (h *harness) resetAtEnd(ts *testscript.TestScript, args []string) {
	dir, config := args[0], ts.MkAbs(args[1])
	ts.Defer(func() {
		eventually(ts, func() (bool, any) {
			left := kill(dir)
			return len(left) == 0, left
		})
		if out, err := exec.Command(h.bin, "reset", "--yes", "--root-dir", dir, "--config", config).
			CombinedOutput(); err != nil {
			ts.Fatalf("reset %s: %v\n%s", dir, err, out)
		}
	})
}

// resetBeside runs a command while a reset is in the middle of its deletions.
func (h *harness) resetBeside(ts *testscript.TestScript, args []string) {
	kernel, err := inotify.Open()
	ts.Check(err)
	defer func() { _ = kernel.Close() }()
	_, err = kernel.Add(args[0], unix.IN_DELETE)
	ts.Check(err)
	reset := exec.Command(h.bin, "reset", "--yes", "--root-dir", rootOf(ts), "--config", ts.MkAbs("config.yaml"))
	ts.Check(reset.Start())
	defer func() {
		ts.Check(pausetest.Resume(reset.Process))
		ts.Check(reset.Wait())
	}()
	_, err = kernel.Read(make([]byte, unix.SizeofInotifyEvent+unix.NAME_MAX+1))
	ts.Check(errors.Join(err, pausetest.Pause(reset.Process)))
	ts.Check(ts.Exec(args[1], args[2:]...))
}

// fillDisk leaves no byte free for files. Directory entries can still be written.
func fillDisk(ts *testscript.TestScript, args []string) {
	f, err := os.Create(filepath.Join(args[0], ".filler"))
	ts.Check(err)
	defer f.Close()
	for size := 64 << 10; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			if !errors.Is(err, unix.ENOSPC) {
				ts.Fatalf("%v", err)
			}
			size /= 2
		}
	}
}

func freeDisk(ts *testscript.TestScript, args []string) {
	ts.Check(os.Remove(filepath.Join(args[0], ".filler")))
}
