package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/test/powercut"
)

// faultTime is how long the disk fails, in seconds: enough for some changes on a slow machine.
const faultTime = 8 * time.Second

// lateErrors is how many changes in a row may be refused after a fault. The kernel reports a block that it could not
// write to whoever syncs something next, also if the disk is good again by then.
const lateErrors = 10

// churn changes the node until the power goes. It returns only an error.
func (l *life) churn(ctx context.Context) error {
	for change, refused := 0, 0; ; change++ {
		if l.fault != "" && change == 4 {
			if err := l.failing(ctx); err != nil {
				return err
			}
		}
		failed := l.change(ctx)
		ended := l.alive()
		if failed == nil && ended == nil {
			refused = 0
			continue
		}
		if refused++; ended == nil && l.disk.lost(l.fault) && refused <= lateErrors {
			fmt.Println(powercut.Line{Note: powercut.Refused + failed.Error()})
			continue
		}
		if !l.disk.lost(l.fault) || !l.disk.readOnly() {
			return errors.Join(failed, ended)
		}
		l.dark(ctx)
	}
}

// dark waits for the power cut. ext4 has become read-only for good: it found later that it could not write a block
// while the disk failed. Its journal has the block, and the next boot writes it.
func (l *life) dark(ctx context.Context) {
	fmt.Println(powercut.Line{Fault: powercut.FaultNone, Note: "the file system is read-only until the next boot"})
	<-ctx.Done()
}

// alive returns an error if the agent has ended.
func (l *life) alive() error {
	select {
	case err := <-l.agent.ended:
		l.agent.ended <- err
		return fmt.Errorf("the agent ended: %w", err)
	default:
		return nil
	}
}

// failing changes the node while the disk fails. Then the disk is good again, and the agent must go on.
func (l *life) failing(ctx context.Context) error {
	fmt.Println(powercut.Line{Fault: l.fault})
	if err := l.disk.fail(l.fault); err != nil {
		return err
	}
	refused, ended := 0, ""
	for began := time.Now(); l.fault == faultDead || time.Since(began) < faultTime; {
		if err := l.change(ctx); err != nil {
			refused++
			fmt.Println(powercut.Line{Note: powercut.Refused + err.Error()})
		}
		if err := l.alive(); err != nil && ended == "" {
			ended = l.agent.tail(3000)
			fmt.Println(powercut.Line{Note: err.Error() + ": " + ended})
		}
	}
	if err := l.disk.recover(l.fault); err != nil {
		return err
	}
	var err error
	if ended != "" { // systemd would start it again
		err = l.agent.start(ctx, l.client)
	}
	if err == nil {
		err = l.check(ctx)
	}
	if l.disk.readOnly() {
		l.dark(ctx)
	}
	if err != nil {
		return fmt.Errorf("after the disk was %s and is good again: %w", l.fault, err)
	}
	fmt.Println(powercut.Line{Fault: powercut.FaultNone})
	fmt.Println(powercut.Line{Note: fmt.Sprintf("goes on after %q with %d changes refused", l.fault, refused)})
	return nil
}

// change makes one change and waits until it is confirmed.
func (l *life) change(ctx context.Context) error {
	l.value++
	value := fmt.Sprintf("%d.%d", l.number, l.value)
	i := l.random.IntN(6)
	name := fmt.Sprintf("p%d", i)
	switch l.random.IntN(10) {
	case 0, 1, 2, 3:
		return l.apply(ctx, name, value, i%3)
	case 4:
		return l.step("pod/"+name, "", func() error {
			grace := time.Duration(0)
			_, err := l.client.Pod(types.NamespacedName{Namespace: "default", Name: name}).Delete(ctx, "", &grace)
			return ignoreAbsent(err)
		})
	case 5, 6:
		return l.step(fmt.Sprintf("config/m%d", i), value, func() error {
			return l.send(ctx, fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m%d}\n"+
				"data: {value: %q}\n", i, value))
		})
	case 7, 8:
		name := fmt.Sprintf("m%d", i%3)
		return l.step("manifest/"+name, value, func() error {
			return write(filepath.Join(root, "manifests"), name+".yaml", manifest(name, value, 0))
		})
	default:
		return l.store(ctx, fmt.Sprintf("c%d", 3*(i/3)+1), value)
	}
}

// step makes a change between its two lines.
func (l *life) step(name, value string, do func() error) error {
	begin := powercut.Line{Begin: true, Name: name, Value: value}
	l.ledger.Read(begin)
	fmt.Println(begin)
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	confirm := powercut.Line{Confirm: true, Name: name, Value: value}
	l.ledger.Read(confirm)
	fmt.Println(confirm)
	return nil
}

func (l *life) send(ctx context.Context, text string) error {
	_, err := l.client.Apply(ctx, []byte(text), client.Apply{Namespace: "default", Origin: "-"})
	return err
}

// apply applies a pod, and before it the claim of some kinds.
func (l *life) apply(ctx context.Context, name, value string, kind int) error {
	if claim := "c" + name[1:]; kind == kindClaim {
		err := l.step("claim/"+claim, "made", func() error {
			return l.send(ctx, fmt.Sprintf(`apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %s, annotations: {%s: made}}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`, claim, annotation))
		})
		if err != nil {
			return err
		}
	}
	return l.step("pod/"+name, value, func() error { return l.send(ctx, manifest(name, value, kind)) })
}

// store writes a file into the volume of a claim, if it has one, as a pod would that syncs its files.
func (l *life) store(ctx context.Context, claim, value string) error {
	dir, err := l.volume(ctx, claim)
	if err != nil || dir == "" {
		return err
	}
	return l.step("data/"+claim, value, func() error { return write(dir, "value", value) })
}

const annotation = "powercut.example/value"

// The kinds of pods.
const (
	kindPlain = iota
	kindClaim
	kindProbe
)

func manifest(name, value string, kind int) string {
	more := map[int]string{
		kindClaim: "volumes: [{name: data, persistentVolumeClaim: {claimName: c" + name[1:] + "}}]",
		kindProbe: "volumes: [{name: data, emptyDir: {}}]",
	}[kind]
	container := map[int]string{
		kindPlain: "args: [sleep]",
		kindClaim: "args: [sleep], volumeMounts: [{name: data, mountPath: /data}]",
		kindProbe: "args: [write, /data/ready, now, then, sleep], volumeMounts: [{name: data, mountPath: /data}],\n" +
			"    readinessProbe: {periodSeconds: 5, timeoutSeconds: 20,\n" +
			"      exec: {command: [/workload, exists, /data/ready]}}",
	}[kind]
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %[1]s, annotations: {%[2]s: %[3]q}}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: app, image: example.com/workload:1, imagePullPolicy: Never, env: [{name: VALUE, value: %[3]q}],
    %[4]s}
  %[5]s
`, name, annotation, value, container, more)
}

// write replaces a file so that it survives a power cut.
func write(dir, name, text string) error {
	next := filepath.Join(dir, "."+name)
	file, err := os.Create(next)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(next, filepath.Join(dir, name)); err != nil {
		return err
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(unix.Fsync(int(d.Fd())), d.Close())
}
