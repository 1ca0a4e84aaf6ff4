package kmsg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/record/event"
)

// Messages of real kernels about killed processes, at the limit of a cgroup and because the machine is out of memory.
// Memory dumps in between are left out.
const (
	cgroup419 = `java invoked oom-killer: gfp_mask=0x6000c0(GFP_KERNEL), nodemask=(null), order=0, oom_score_adj=-998
Task in /kubepods/burstable/pod1/app killed as a result of limit of /kubepods/burstable/pod1/app
memory: usage 102400kB, limit 102400kB, failcnt 4011
Memory cgroup out of memory: Kill process 4242 (java) score 1984 or sacrifice child
Killed process 4242 (java) total-vm:2104828kB, anon-rss:101432kB, file-rss:18560kB, shmem-rss:0kB`
	machine419 = `stress invoked oom-killer: gfp_mask=0x6280ca(GFP_HIGHUSER_MOVABLE|__GFP_ZERO), nodemask=(null), ` +
		`order=0, oom_score_adj=0
stress cpuset=/ mems_allowed=0
Out of memory: Kill process 1234 (stress) score 917 or sacrifice child
Killed process 1240 (stress worker) total-vm:8391504kB, anon-rss:7340032kB, file-rss:4kB, shmem-rss:0kB`
	cgroup54 = `app invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=969
oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=abc,mems_allowed=0,oom_memcg=/kubepods/pod1,` +
		`task_memcg=/kubepods/pod1/abc,task=app,pid=77,uid=1000
Memory cgroup out of memory: Killed process 77 (app) total-vm:110000kB, anon-rss:99000kB, file-rss:0kB, ` +
		`shmem-rss:0kB, UID:1000 pgtables:240kB oom_score_adj:969
oom_reaper: reaped process 77 (app), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB`
	machine515 = `systemd-journal invoked oom-killer: gfp_mask=0x1100cca(GFP_HIGHUSER_MOVABLE), order=0, ` +
		`oom_score_adj=-250
oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/user.slice,` +
		`task=python3,pid=31337,uid=0
Out of memory: Killed process 31337 (python3) total-vm:16000000kB, anon-rss:15700000kB, file-rss:0kB, ` +
		`shmem-rss:0kB, UID:0 pgtables:30900kB oom_score_adj:0`
	allocating612 = `oom-kill:constraint=CONSTRAINT_CPUSET,nodemask=(null),cpuset=x,mems_allowed=1,global_oom,` +
		`task_memcg=/,task=a (b) c,pid=9,uid=0
Out of memory (oom_kill_allocating_task): Killed process 9 (a (b) c) total-vm:12kB, anon-rss:0kB, file-rss:0kB, ` +
		`shmem-rss:0kB, UID:0 pgtables:40kB oom_score_adj:0`
	group612 = `Memory cgroup out of memory: Killed process 50 (sh) total-vm:10kB, anon-rss:0kB, file-rss:0kB, ` +
		`shmem-rss:0kB, UID:0 pgtables:40kB oom_score_adj:0
Tasks in /kubepods/pod1/abc are going to be killed due to memory.oom.group set
Memory cgroup out of memory: Killed process 51 (sleep) total-vm:10kB, anon-rss:0kB, file-rss:0kB, shmem-rss:0kB, ` +
		`UID:0 pgtables:40kB oom_score_adj:0`
)

func TestVictims(t *testing.T) {
	for name, c := range map[string]struct {
		said string
		want []victim
	}{
		"a cgroup, 4.19":              {cgroup419, nil},
		"the machine, 4.19":           {machine419, []victim{{"stress worker", 1240}}},
		"the machine, then a cgroup":  {machine419 + "\n" + cgroup419, []victim{{"stress worker", 1240}}},
		"a cgroup, 5.4":               {cgroup54, nil},
		"the machine, 5.15":           {machine515, []victim{{"python3", 31337}}},
		"who allocates, 6.12":         {allocating612, []victim{{"a (b) c", 9}}},
		"a whole cgroup, 6.12":        {group612, nil},
		"both at once":                {cgroup54 + "\n" + machine515, []victim{{"python3", 31337}}},
		"a program that tells of one": {"app: Out of memory: Killed process 1 (init) total-vm", nil},
		"cut off":                     {"Out of memory: Killed process 12", nil},
	} {
		var p parser
		var got []victim
		for _, line := range strings.Split(c.said, "\n") {
			if v, ok := p.next(line); ok {
				got = append(got, v)
			}
		}
		if diff := cmp.Diff(c.want, got, cmp.AllowUnexported(victim{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestMessage(t *testing.T) {
	for record, want := range map[string]string{
		"3,1,2,-;Out of memory\n":                      "Out of memory",
		"6,1,2,-,caller=T1;a;b\n SUBSYSTEM=x\n D=+y\n": "a;b",
		"11,1,2,-;a program says so\n":                 "",
		"30,1,2,-;systemd says so\n":                   "",
		"no record":                                    "",
		"x,1,2,-;no number\n":                          "",
	} {
		if got, ok := message(record); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %t", record, got, ok)
		}
	}
}

// recorder records events.
type recorder []string

func (e *recorder) Event(ref corev1.ObjectReference, kind, reason, format string, args ...any) {
	*e = append(*e, fmt.Sprintf("%s %s %s %s: ", ref.Kind, ref.Name, kind, reason)+fmt.Sprintf(format, args...))
}

// records is a log with some overwritten records.
type records []string

func (r *records) Read(b []byte) (int, error) {
	if len(*r) == 0 {
		return 0, io.EOF
	}
	next := (*r)[0]
	*r = (*r)[1:]
	if next == "" {
		return 0, &os.PathError{Op: "read", Path: Device, Err: unix.EPIPE}
	}
	return copy(b, next), nil
}

func TestFollow(t *testing.T) {
	var got recorder
	l := New(Options{Node: event.NodeRef("n"), Pods: owners{}, Events: &got})
	const killed = "Out of memory: Killed process 5 (db) total-vm:1kB\n"
	if err := l.follow(&records{"4,1,1,-;db invoked oom-killer\n", "", "3,7,1,-;" + killed,
		"11,8,1,-;" + killed}); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	want := recorder{"Node n Warning SystemOOM: System OOM encountered, victim process: db, pid: 5"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// On a machine that does not allow reading its log, Run waits for the end of its context.
func TestUnreadableLog(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	said := make(chan struct{})
	l := New(Options{Path: t.TempDir() + "/none",
		Log: slog.New(slog.NewTextHandler(once(func() { close(said) }), nil))})
	done := make(chan error)
	go func() { done <- l.Run(ctx) }()
	<-said
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// once calls f for each logged line.
type once func()

func (f once) Write(b []byte) (int, error) { f(); return len(b), nil }

// A record that a program writes to the kernel's log is ignored, although it imitates the kernel. The end of the
// context ends a blocked read.
func TestRecordsOfProgramsAreIgnored(t *testing.T) {
	log, err := open(Device)
	if err != nil {
		t.Skip(err)
	}
	defer func() { _ = log.Close() }()
	w, err := os.OpenFile(Device, os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer func() { _ = w.Close() }()
	fake := fmt.Sprintf("Out of memory: Killed process 1 (berth test %d) total-vm:1kB", time.Now().UnixNano())
	write := func() {
		if _, err := io.WriteString(w, "<3>"+fake); err != nil {
			t.Error(err)
		}
	}
	write()
	again := time.AfterFunc(6*time.Second, write) // the kernel drops records beyond a rate for 5 s
	defer again.Stop()
	buffer := make([]byte, recordSize)
	for {
		if err := log.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		n, err := log.Read(buffer)
		if errors.Is(err, unix.EPIPE) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(buffer[:n]), fake) {
			continue
		}
		if text, ok := message(string(buffer[:n])); ok {
			t.Errorf("a program's record counts: %q in %q", text, buffer[:n])
		}
		break
	}

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- New(Options{Path: Device, Log: slog.New(slog.DiscardHandler)}).Run(ctx) }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
