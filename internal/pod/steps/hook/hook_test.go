package hook

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/testing/protocmp"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

// patience limits how long a test waits. A test that passes never waits that long.
const patience = 20 * time.Second

// hooks returns a Hooks with one script for each name MOMENT/FILE.
func hooks(t *testing.T, scripts map[string]string) *Hooks {
	t.Helper()
	h := New(Options{Log: slog.New(slog.DiscardHandler), Dir: t.TempDir()})
	for name, script := range scripts {
		file := filepath.Join(h.dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func testPod() (*corev1.Pod, pod.Container) {
	p := &corev1.Pod{}
	p.Name, p.Namespace, p.UID = "web", "default", "6b1e"
	p.Spec.InitContainers = []corev1.Container{{Name: "app", Image: "busybox"}}
	return p, pod.Containers(p)[0]
}

func preCreated(t *testing.T, h *Hooks, config *runtimeapi.ContainerConfig) error {
	t.Helper()
	p, c := testPod()
	return h.PreCreate(t.Context(), p, c, config)
}

func TestNoDirectory(t *testing.T) {
	h := New(Options{Log: slog.New(slog.DiscardHandler), Dir: filepath.Join(t.TempDir(), "absent")})
	if err := errors.Join(preCreated(t, h, nil), h.PreStop(t.Context(), "c1"),
		h.PostStop(t.Context(), "c1")); err != nil {
		t.Error(err)
	}
}

func TestPreCreateAnswers(t *testing.T) {
	h := hooks(t, map[string]string{
		"pre-create/10-cpus": `echo '{"cpusetCpus":"0-1,4","cpusetMems":"0",` +
			`"annotations":{"example.com/pinned":"yes"}}'`,
		"pre-create/20-device": `echo '{"devices":[{"hostPath":"/dev/fuse","containerPath":"/dev/fuse"},` +
			`{"hostPath":"/dev/kvm","containerPath":"/dev/k","permissions":"rw"}],"cdiDevices":["vendor.com/gpu=0"]}'`,
		"pre-create/30-env": `echo '{"mounts":[{"hostPath":"/srv/ca","containerPath":"/ca","readOnly":true}],` +
			`"env":[{"name":"A","value":"new"},{"name":"C","value":"x"}]}'`,
		"pre-create/40-quiet": `cat >/dev/null`,
		"pre-create/.hidden":  `exit 1`,
	})
	if err := os.WriteFile(filepath.Join(h.dir, "pre-create/50-notes.txt"), []byte("not a hook"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(h.dir, "pre-create/60-dir"), 0o755); err != nil {
		t.Fatal(err)
	}
	// An editor's lock is such a link. Neither it nor a link of the operator blocks the container.
	for _, name := range []string{"pre-create/.#10-cpus", "pre-create/70-gone"} {
		if err := os.Symlink("nowhere", filepath.Join(h.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	got := &runtimeapi.ContainerConfig{Envs: []*runtimeapi.KeyValue{{Key: "A", Value: []byte("old")},
		{Key: "B", Value: []byte("b")}}}
	if err := preCreated(t, h, got); err != nil {
		t.Fatal(err)
	}
	want := &runtimeapi.ContainerConfig{
		Linux: &runtimeapi.LinuxContainerConfig{Resources: &runtimeapi.LinuxContainerResources{CpusetCpus: "0-1,4",
			CpusetMems: "0"}},
		Devices: []*runtimeapi.Device{
			{HostPath: "/dev/fuse", ContainerPath: "/dev/fuse", Permissions: "rwm"},
			{HostPath: "/dev/kvm", ContainerPath: "/dev/k", Permissions: "rw"},
		},
		CDIDevices: []*runtimeapi.CDIDevice{{Name: "vendor.com/gpu=0"}},
		Mounts:     []*runtimeapi.Mount{{HostPath: "/srv/ca", ContainerPath: "/ca", Readonly: true}},
		Envs: []*runtimeapi.KeyValue{{Key: "B", Value: []byte("b")}, {Key: "A", Value: []byte("new")},
			{Key: "C", Value: []byte("x")}},
		Annotations: map[string]string{"example.com/pinned": "yes"},
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

func TestMessage(t *testing.T) {
	seen := filepath.Join(t.TempDir(), "seen")
	h := hooks(t, map[string]string{
		"pre-create/h": `cat >` + seen, "pre-start/h": `cat >` + seen,
		"pre-stop/h": `cat >` + seen, "post-stop/h": `[ "$BERTH_HOOK" = post-stop ] && cat >` + seen,
	})
	p, c := testPod()
	spec := `"pod":{"metadata":{"name":"web","namespace":"default","uid":"6b1e"},` +
		`"spec":{"initContainers":[{"name":"app","image":"busybox","resources":{}}],"containers":null},"status":{}},` +
		`"container":{"name":"app","image":"busybox","resources":{}},"kind":"init container"`
	cases := []struct {
		call func() error
		want string
	}{
		{func() error {
			return h.PreCreate(t.Context(), p, c,
				&runtimeapi.ContainerConfig{Metadata: &runtimeapi.ContainerMetadata{Attempt: 2}})
		}, `{"hook":"pre-create",` + spec + `,"attempt":2}`},
		{func() error { return h.PreStart(t.Context(), p, c, "c1") }, `{"hook":"pre-start",` + spec + `,"id":"c1"}`},
		{func() error { return h.PreStop(t.Context(), "c1") }, `{"hook":"pre-stop","id":"c1"}`},
		{func() error { return h.PostStop(t.Context(), "c1") }, `{"hook":"post-stop","id":"c1"}`},
	}
	for _, c := range cases {
		if err := c.call(); err != nil {
			t.Error(err)
		}
		got, err := os.ReadFile(seen)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, string(got)); diff != "" {
			t.Error(diff)
		}
	}
}

func TestHookRefuses(t *testing.T) {
	cases := map[string]struct{ script, want string }{
		"exit":          {`echo no such licence >&2; exit 3`, "hook pre-create/h: exit status 3: no such licence"},
		"long stderr":   {`yes x | head -c 4000 >&2; echo end >&2; exit 1`, "x\nend"},
		"not JSON":      {`echo hello`, "hook pre-create/h: read its answer: invalid character 'h'"},
		"unknown field": {`echo '{"cpus":"1"}'`, `json: unknown field "cpus"`},
		"two values":    {`echo '{}{}'`, "more than one JSON value"},
		"bad cpus":      {`echo '{"cpusetCpus":"3-1"}'`, `cpusetCpus "3-1" is not a list like 0-3,8`},
		"spaces":        {`echo '{"cpusetCpus":"0, 1"}'`, `cpusetCpus "0, 1" is not a list like 0-3,8`},
		"bad mems":      {`echo '{"cpusetMems":"a"}'`, `cpusetMems "a" is not a list`},
		"bad device": {`echo '{"devices":[{"hostPath":"dev/x","containerPath":"/x"}]}'`,
			"devices[0]: hostPath and containerPath must be absolute paths"},
		"bad letters": {`echo '{"devices":[{"hostPath":"/x","containerPath":"/x","permissions":"rx"}]}'`,
			`devices[0]: permissions "rx" must consist of the letters r, w and m`},
		"bad mount": {`echo '{"mounts":[{"hostPath":"/x"}]}'`,
			"mounts[0]: hostPath and containerPath must be absolute paths"},
		"bad variable": {`echo '{"env":[{"name":"a=b"}]}'`, `env[0]: "a=b" cannot be a variable`},
		"bad CDI name": {`echo '{"cdiDevices":[""]}'`, "cdiDevices has an empty name"},
		"our label": {`echo '{"annotations":{"io.kubernetes.container.hash":"1"}}'`,
			`annotation "io.kubernetes.container.hash" is reserved for Kubernetes and Berth`},
		"endless":     {`exec head -c 2000000 /dev/zero`, "answered more than 1048576 bytes"},
		"open output": {`sleep 60 & echo $! >$TMP`, "a process it started keeps its output open"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			pid := filepath.Join(t.TempDir(), "pid")
			h := hooks(t, map[string]string{"pre-create/h": strings.ReplaceAll(c.script, "$TMP", pid)})
			err := preCreated(t, h, &runtimeapi.ContainerConfig{})
			if err == nil || !strings.Contains(err.Error(), c.want) || len(err.Error()) > maxStderr+100 {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if raw, err := os.ReadFile(pid); err == nil {
				ended(t, string(raw))
			}
		})
	}
}

// ended fails the test unless the process has ended, and kills it.
func ended(t *testing.T, pid string) {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(pid))
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(n, 0)
	if errors.Is(err, unix.ESRCH) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	// A pidfd is readable once its process has ended, reaped or not (pidfd_open(2)).
	ready, err := 0, error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		ready, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(patience.Milliseconds()))
	}
	if ready == 1 {
		return
	}
	t.Errorf("process %d is left (%v)", n, err)
	_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
}

func TestStopsAtTheFirstRefusal(t *testing.T) {
	mark := filepath.Join(t.TempDir(), "mark")
	h := hooks(t, map[string]string{"pre-start/1": "exit 1", "pre-start/2": "touch " + mark})
	p, c := testPod()
	if err := h.PreStart(t.Context(), p, c, "c1"); err == nil {
		t.Error("no error")
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("the next hook ran")
	}
}

func TestOnlyPreCreateAnswers(t *testing.T) {
	h := hooks(t, map[string]string{"pre-stop/h": `echo '{}'`})
	if err := h.PreStop(t.Context(), "c1"); err == nil ||
		!strings.Contains(err.Error(), "only pre-create hooks may answer") {
		t.Error(err)
	}
}

func TestTimeoutKillsTheGroup(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	h := hooks(t, map[string]string{"pre-create/h": "echo started >&2; sleep 60 & echo $! >" + pid + "; wait"})
	h.timeout = 2 * time.Second // long enough for the shell to reach its wait
	err := preCreated(t, h, nil)
	if err == nil || err.Error() != "hook pre-create/h: did not end within 2s: started" {
		t.Error(err)
	}
	raw, err := os.ReadFile(pid)
	if err != nil {
		t.Fatal(err)
	}
	ended(t, string(raw))
}

func TestInterrupted(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	h := hooks(t, map[string]string{"pre-stop/h": "echo running >" + fifo + "; sleep 60"})
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error)
	go func() { result <- h.PreStop(ctx, "c1") }()
	if _, err := os.ReadFile(fifo); err != nil { // returns once the hook runs
		t.Fatal(err)
	}
	begin := time.Now()
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if took := time.Since(begin); took > patience {
		t.Errorf("took %v to end", took)
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "{}", `{"cpusetCpus":"0-3"}`, `{"devices":[{}]}`, `{"env":[{"name":"A"}]}`, "null",
		"[]"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		a, err := parse(raw)
		if err != nil {
			return
		}
		a.apply(&runtimeapi.ContainerConfig{})
		again, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := parse(again); err != nil || !cmp.Equal(a, b, cmpopts.EquateEmpty()) {
			t.Errorf("%q read back as %+v, %v", again, b, err)
		}
	})
}
