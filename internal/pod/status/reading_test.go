package status

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/roottest"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/podstatus"
)

// hung returns the exited containers of a pod whose termination logs lie on a file system that never answers.
func hung(t *testing.T, count int) (run []pod.ContainerStatus, release func()) {
	t.Helper()
	roottest.Need(t, "mounting")
	dir := t.TempDir()
	free, err := roottest.Hang(dir)
	if err != nil {
		t.Fatal(err)
	}
	released := false
	release = func() {
		if released {
			return
		}
		if released, err = true, free(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(release)
	for i := range count {
		s := exited("a"+strconv.Itoa(i), 1)
		s.TerminationFromLogs, s.LogPath = true, filepath.Join(dir, strconv.Itoa(i)+".log")
		run = append(run, s)
	}
	return run, release
}

func TestUpdateDoesNotWaitForHangingRead(t *testing.T) {
	runs, release := hung(t, 1)
	r := NewRecord(RecordOptions{})
	in := podstatus.Input{Pod: newPod("u1"), Observed: observedOf(runs[0]), Node: node, Now: now}
	_, changed, wait := r.update(in)
	if changed || wait == nil {
		t.Fatalf("update stored a status (%v) while the message was being read (%v)", changed, wait)
	}
	if _, known := r.table.Get("u1"); known {
		t.Error("the table has a status without the message")
	}
	// Another pod is not affected.
	other := podstatus.Input{Pod: newPod("u2"), Observed: observedOf(exited("b1", 1)), Node: node, Now: now}
	if status, changed := updated(r, other); !changed {
		t.Errorf("no status of another pod: %+v", status)
	}
	release()
	// The mark comes after the end of the read, which another goroutine notes.
	for _, ended := range []<-chan struct{}{wait.done, r.opts.Stale.marks.C()} {
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Fatal("the read has not ended although its file system was released")
		}
	}
	if pods, _ := r.opts.Stale.take(); !contains(pods, "u1") {
		t.Error("the pod is not marked after its message was read")
	}
	const message = "Error on reading termination message"
	if status, changed := updated(r, in); !changed ||
		!strings.HasPrefix(status.ContainerStatuses[0].State.Terminated.Message, message) {
		t.Errorf("status after the read: %+v", status)
	}
}

func TestUpdateGoesOnAfterReadPatience(t *testing.T) {
	runs, _ := hung(t, 1)
	r := NewRecord(RecordOptions{})
	status, _ := updated(r, podstatus.Input{Pod: newPod("u1"), Observed: observedOf(runs[0]), Node: node, Now: now})
	want := "Error on reading termination message: no answer after 5s"
	if got := status.ContainerStatuses[0].State.Terminated.Message; got != want {
		t.Errorf("message %q, want %q", got, want)
	}
}

// A container that crashes again and again must not leave more and more threads in the kernel.
func TestHangingReadsOfOnePodAreBounded(t *testing.T) {
	runs, _ := hung(t, maxReadings+3)
	r := NewRecord(RecordOptions{})
	for _, run := range runs {
		_, _, _ = r.update(podstatus.Input{Pod: newPod("u1"), Observed: observedOf(run), Node: node, Now: now})
	}
	e := r.entry("u1")
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.reading != maxReadings {
		t.Errorf("%d reads hang, want at most %d", e.reading, maxReadings)
	}
	message, ok := e.readings[runs[len(runs)-1].ID].result()
	if !ok || !strings.Contains(message, "reads of this pod's files hang") {
		t.Errorf("the message beyond the bound is %q (read: %v)", message, ok)
	}
}

func contains(pods map[types.UID]bool, uid types.UID) bool { _, ok := pods[uid]; return ok }
