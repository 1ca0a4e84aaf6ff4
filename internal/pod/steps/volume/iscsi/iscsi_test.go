package iscsi

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/pod/steps/volume"
	"github.com/berth-run/berth/internal/pod/steps/volume/scsi"
)

const target = "iqn.2025-01.com.example:disks"

// fake stands for iscsiadm and the kernel: a login makes the files of a session with two disks, and a logout removes
// them. Every call is a line of the file calls.
const fake = `#!/bin/sh
echo "$*" >>DIR/calls
session=DIR/sys/class/iscsi_session/session1
case "$*" in
*--login)
	grep -q secret DIR/calls || { echo "login failed" >&2; exit 24; }
	for lun in 0 1; do
		mkdir -p DIR/sys/devices/host2/session1/target2:0:0/2:0:0:$lun/block/sd$lun DIR/sys/block/sd$lun/device
		touch DIR/sys/block/sd$lun/device/delete
	done
	mkdir -p $session DIR/sys/class/iscsi_connection/connection1:0 DIR/sys/class/scsi_host/host2
	ln -s ../../../devices/host2/session1 $session/device
	echo TARGET >$session/targetname
	echo default >$session/ifacename
	echo 10.0.0.1 >DIR/sys/class/iscsi_connection/connection1:0/persistent_address
	echo 3260 >DIR/sys/class/iscsi_connection/connection1:0/persistent_port
	;;
*--logout) rm -r $session || exit 21 ;;
esac
`

type chap string

func (c chap) Secret(_, _ string) (*corev1.Secret, error) {
	return &corev1.Secret{Data: map[string][]byte{"node.session.auth.password": []byte(c)}}, nil
}

// machine makes a Kind on a fake machine. Its calls are in the file calls of dir.
func machine(t *testing.T, password chap) (k *Kind, dir string) {
	t.Helper()
	dir = t.TempDir()
	bin := filepath.Join(dir, "bin")
	for name, text := range map[string]string{"iscsiadm": fake, "blockdev": "#!/bin/sh\n"} {
		text = strings.NewReplacer("DIR", dir, "TARGET", target).Replace(text)
		if err := os.MkdirAll(bin, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	return New(Options{Root: filepath.Join(dir, "root"), Secrets: password, Log: slog.New(slog.DiscardHandler),
		Machine: scsi.Machine{Sys: filepath.Join(dir, "sys"), Dev: filepath.Join(dir, "dev")}}), dir
}

// request is a volume that a pod uses as a device, whose shared part has a directory.
func request(t *testing.T, k *Kind, lun int32) volume.Request {
	t.Helper()
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("disk", lun)}}
	pv.Spec.ISCSI = &corev1.ISCSIPersistentVolumeSource{TargetPortal: "10.0.0.1", IQN: target, Lun: lun,
		SessionCHAPAuth: true, SecretRef: &corev1.SecretReference{Namespace: "team", Name: "chap"}}
	r := volume.Request{Pod: &corev1.Pod{}, Persistent: pv, Block: true}
	part := filepath.Join(k.o.Root, "plugins", k.Dir(), pv.Name)
	r.Stage, r.Target = filepath.Join(part, "globalmount"), filepath.Join(part, "device")
	if err := os.MkdirAll(r.Stage, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(part, "id"), []byte(k.StageID(r)), 0o600); err != nil {
		t.Fatal(err)
	}
	return r
}

func calls(t *testing.T, dir string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "calls"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "calls")); err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

func TestVolumesOfATargetShareItsSession(t *testing.T) {
	k, dir := machine(t, "secret")
	first, second := request(t, k, 0), request(t, k, 1)
	const node = "-m node -p 10.0.0.1:3260 -T " + target + " -I default "
	const db = "-m discoverydb -t sendtargets -p 10.0.0.1:3260 -I default "
	for i, r := range []volume.Request{first, second} {
		if err := k.Stage(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		device, err := k.Publish(t.Context(), r)
		if want := filepath.Join(dir, "dev", fmt.Sprint("sd", i)); device != want || err != nil {
			t.Errorf("got device %q, %v, want %q", device, err, want)
		}
		if to, err := os.Readlink(r.Target); to != device || err != nil {
			t.Errorf("the pod's link leads to %q, %v", to, err)
		}
	}
	want := []string{db + "-o new", db + "--discover", node + "-o update -n node.session.auth.authmethod -v CHAP",
		node + "-o update -n node.session.auth.password -v secret", node + "-o update -n node.session.scan -v manual",
		node + "--login", node + "-o update -n node.startup -v manual"}
	if diff := cmp.Diff(want, calls(t, dir)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	// The next agent knows what this one has begun.
	k = New(k.o)
	for i, r := range []volume.Request{first, second} {
		if err := k.Unpublish(t.Context(), r.Target); err != nil {
			t.Error(err)
		}
		for range 2 { // the second time is after an interrupted removal
			if err := k.Unstage(t.Context(), r.Stage); err != nil {
				t.Fatal(err)
			}
		}
		deleted, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("sys/block/sd%d/device/delete", i)))
		if string(deleted) != "1" || err != nil {
			t.Errorf("disk %d was not removed: %q, %v", i, deleted, err)
		}
		_, err = os.Stat(filepath.Join(dir, "calls"))
		if isLast := i == 1; isLast != (err == nil) {
			t.Errorf("after disk %d: %v", i, err)
		}
	}
	want = []string{node + "--logout", node + "-o delete"}
	if diff := cmp.Diff(want, calls(t, dir)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSessionOfTheAdministratorStays(t *testing.T) {
	k, dir := machine(t, "secret")
	r := request(t, k, 0)
	if _, err := admin(t.Context(), "log in", "secret", "--login"); err != nil {
		t.Fatal(err)
	}
	if err := k.Stage(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if err := k.Unstage(t.Context(), r.Stage); err != nil {
		t.Fatal(err)
	}
	if got := calls(t, dir); len(got) != 1 {
		t.Errorf("got other calls: %q", got[1:])
	}
	deleted, err := os.ReadFile(filepath.Join(dir, "sys/block/sd0/device/delete"))
	if string(deleted) != "" || err != nil {
		t.Errorf("the disk was removed: %q, %v", deleted, err)
	}
}

func TestLoginThatFailsSaysWhyWithoutThePassword(t *testing.T) {
	k, _ := machine(t, "wrong-password")
	r := request(t, k, 0)
	err := k.Stage(t.Context(), r)
	const why = "log in to " + target + " through portal 10.0.0.1:3260: exit status 24: login failed"
	if err == nil || !strings.Contains(err.Error(), why) || strings.Contains(err.Error(), "wrong-password") {
		t.Errorf("got %v", err)
	}
	if err := k.Unstage(t.Context(), r.Stage); err != nil {
		t.Errorf("unstage: %v", err)
	}
}
