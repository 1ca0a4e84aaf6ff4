package payload_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/berth-run/berth/internal/base/roottest"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/steps/volume"
	"github.com/berth-run/berth/internal/pod/steps/volume/emptydir"
	"github.com/berth-run/berth/internal/pod/steps/volume/keyvalue"
	"github.com/berth-run/berth/internal/pod/steps/volume/payload"
	"github.com/berth-run/berth/internal/pod/steps/volume/projected"
)

type recorded struct {
	mu   sync.Mutex
	list []string
}

func (r *recorded) Event(_ corev1.ObjectReference, _, reason, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, reason+": "+fmt.Sprintf(format, args...))
}

// take returns the events since the last call.
func (r *recorded) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.list
	r.list = nil
	return list
}

// node is a machine with a table of objects. Agents start and end on it.
type node struct {
	t      *testing.T
	dir    string
	table  *object.Table
	events *recorded
	issuer projected.Issuer
	// heard is set for a node of a cluster: it reports whether the API server has answered for an object.
	heard func(object.Key) bool
}

func newNode(t *testing.T) *node {
	t.Helper()
	roottest.Need(t, "mounting")
	n := &node{t: t, dir: t.TempDir(), table: store.New[object.Key, runtime.Object](), events: &recorded{}}
	t.Cleanup(func() {
		if err := volume.Unmount(n.dir); err != nil {
			t.Error(err)
		}
	})
	return n
}

// agent is one run of the agent.
type agent struct {
	*node
	volumes                         *payload.Volumes
	configMaps, secrets, projecteds volume.Kind
}

// start starts an agent. synced is closed once all sources of objects have been read.
func (n *node) start(ctx context.Context, synced <-chan struct{}) agent {
	objects := object.New(n.table)
	if n.heard != nil {
		objects = object.Joined(n.table, n.heard)
	}
	v := payload.New(payload.Config{
		Objects: objects, Synced: synced, Events: n.events, Log: slog.New(slog.DiscardHandler),
		EmptyDir: emptydir.Kind{Allocatable: 1 << 30, Limits: memoryLimit(256 << 10)},
	})
	go func() { _ = v.Run(ctx) }()
	return agent{n, v, v.Disk(keyvalue.ConfigMap), v.Memory(keyvalue.Secret),
		v.Memory(projected.Source{Issuer: n.issuer})}
}

func closed() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

func (n *node) configMap(name string, immutable bool, pairs ...string) {
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{}}
	if immutable {
		m.Immutable = new(true)
	}
	for i := 0; i < len(pairs); i += 2 {
		m.Data[pairs[i]] = pairs[i+1]
	}
	n.table.Put(keyvalue.ConfigMap.Key("default", name), m)
}

func (n *node) secret(name, key, value string) {
	n.table.Put(keyvalue.Secret.Key("default", name),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Data: map[string][]byte{key: []byte(value)}})
}

// request is for a volume that the container of the pod app mounts at /config.
func (n *node) request(k volume.Kind, name string, source corev1.VolumeSource) volume.Request {
	r := volume.Request{
		Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "app", UID: "u1"},
			Spec: corev1.PodSpec{
				Containers: []corev1.Container{{Name: "app",
					VolumeMounts: []corev1.VolumeMount{{Name: name, MountPath: "/config"},
						{Name: "run", MountPath: "/config/run"}}}},
			}},
		Volume: &corev1.Volume{Name: name, VolumeSource: source},
		Target: filepath.Join(n.dir, k.Dir(), name),
	}
	if err := os.MkdirAll(filepath.Dir(r.Target), 0o750); err != nil {
		n.t.Fatal(err)
	}
	return r
}

func configMapSource(name string, optional bool, items ...string) corev1.VolumeSource {
	s := &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name},
		Optional: &optional}
	for _, item := range items {
		s.Items = append(s.Items, corev1.KeyToPath{Key: item, Path: item})
	}
	return corev1.VolumeSource{ConfigMap: s}
}

func (n *node) publish(k volume.Kind, r volume.Request) {
	n.t.Helper()
	if path, err := k.Publish(n.t.Context(), r); err != nil || path != r.Target {
		n.t.Fatalf("%s, %v", path, err)
	}
}

// want checks what a container reads in the volume.
func (n *node) want(r volume.Request, files map[string]string) {
	n.t.Helper()
	got := map[string]string{}
	names, err := filepath.Glob(filepath.Join(r.Target, "[^.]*"))
	for _, name := range names {
		if info, err := os.Stat(name); err == nil && info.IsDir() {
			continue
		}
		content, readErr := os.ReadFile(name)
		err = errors.Join(err, readErr)
		got[filepath.Base(name)] = string(content)
	}
	if d := cmp.Diff(files, got); d != "" || err != nil {
		n.t.Errorf("%v (-want +got):\n%s", err, d)
	}
}

func (n *node) wantEvents(want ...string) {
	n.t.Helper()
	got := n.events.take()
	slices.Sort(got)
	if d := cmp.Diff(want, got); d != "" {
		n.t.Errorf("events (-want +got):\n%s", d)
	}
}

const failed = `FailedMount: MountVolume.SetUp failed for volume "config" : `

func TestPublishWaitsForObjectsAndKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		a := n.start(t.Context(), closed())
		r := n.request(a.configMaps, "config", configMapSource("app", false, "one", "two", "three"))
		refused := func(message string) {
			t.Helper()
			_, err := a.configMaps.Publish(t.Context(), r)
			keys, only := object.Waits(err)
			if err == nil || err.Error() != message || !only || keys[0] != keyvalue.ConfigMap.Key("default", "app") {
				t.Errorf("%v, waits for %v, %v", err, keys, only)
			}
			if _, err := os.Stat(r.Target); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the volume exists: %v", err)
			}
		}
		refused("waiting for ConfigMap default/app")
		n.configMap("app", false, "one", "1")
		refused(
			"configmap references non-existent config key: two, configmap references non-existent config key: three")
		n.configMap("app", false, "one", "1", "two", "2", "three", "3", "four", "4")
		n.publish(a.configMaps, r)
		n.want(r, map[string]string{"one": "1", "two": "2", "three": "3"})
		if info, err := os.Stat(filepath.Join(r.Target, "run")); err != nil || !info.IsDir() {
			t.Errorf("the mount point in the volume: %v", err)
		}
		for range 2 {
			if err := a.configMaps.Unpublish(t.Context(), r.Target); err != nil {
				t.Fatal(err)
			}
		}
		n.configMap("app", false, "one", "1", "two", "2", "three", "x")
		synctest.Wait()
		if _, err := os.Stat(r.Target); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the volume is back: %v", err)
		}
		n.wantEvents()
	})
}

func TestFilesFollowTheObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		a := n.start(t.Context(), closed())
		n.configMap("app", false, "a", "1")
		n.secret("app", "key", "s1")
		config := n.request(a.configMaps, "config", configMapSource("app", false))
		optional := n.request(a.configMaps, "optional", configMapSource("later", true))
		hidden := n.request(a.secrets, "config",
			corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "app"}})
		n.publish(a.configMaps, config)
		n.publish(a.configMaps, optional)
		n.publish(a.secrets, hidden)
		n.want(optional, map[string]string{})
		if ok, err := volume.Mounted(hidden.Target, unix.TMPFS_MAGIC); !ok || err != nil {
			t.Errorf("the secret is not in memory: %v, %v", ok, err)
		}
		n.configMap("app", false, "b", "2", "a", "1")
		n.configMap("later", false, "c", "3")
		n.secret("app", "key", "s2")
		synctest.Wait()
		n.want(config, map[string]string{"a": "1", "b": "2"})
		n.want(optional, map[string]string{"c": "3"})
		n.want(hidden, map[string]string{"key": "s2"})

		time.Sleep(time.Second / 2) // a change without effect: replaced versions are removed all the same
		n.configMap("app", false, "b", "2", "a", "1")
		n.secret("app", "key", "s2")
		synctest.Wait()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		for _, r := range []volume.Request{config, optional, hidden} {
			if versions, _ := filepath.Glob(filepath.Join(r.Target, "..2*")); len(versions) != 1 {
				t.Errorf("%s has %d versions", r.Target, len(versions))
			}
		}
		// The files of a deleted object stay, except the files of an optional object.
		n.table.Delete(keyvalue.ConfigMap.Key("default", "app"))
		n.table.Delete(keyvalue.ConfigMap.Key("default", "later"))
		synctest.Wait()
		n.want(config, map[string]string{"a": "1", "b": "2"})
		n.want(optional, map[string]string{})
		n.wantEvents(failed + "waiting for ConfigMap default/app; its files stay as they are")

		n.configMap("app", false, "a", "4")
		synctest.Wait()
		n.want(config, map[string]string{"a": "4"})
		n.wantEvents()
	})
}

func TestImmutableObjectsArePinned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		a := n.start(t.Context(), closed())
		n.configMap("app", false, "a", "1")
		first := n.request(a.configMaps, "config", configMapSource("app", false))
		n.publish(a.configMaps, first)
		n.configMap("app", true, "a", "2")
		synctest.Wait()
		n.want(first, map[string]string{"a": "2"}) // the object was not immutable yet
		n.table.Delete(keyvalue.ConfigMap.Key("default", "app"))
		n.configMap("app", false, "a", "3")
		synctest.Wait()
		second := n.request(a.configMaps, "other", configMapSource("app", false))
		n.publish(a.configMaps, second)
		n.publish(a.configMaps, first) // for another version of the pod
		n.want(first, map[string]string{"a": "2"})
		n.want(second, map[string]string{"a": "3"})
		n.wantEvents()
	})
}

func TestRestartedAgentKeepsAndUpdatesFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		life, kill := context.WithCancel(t.Context())
		a := n.start(life, closed())
		n.configMap("app", false, "a", "1")
		n.secret("app", "key", "s1")
		config := n.request(a.configMaps, "config", configMapSource("app", false))
		hidden := n.request(a.secrets, "hidden",
			corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "app"}})
		n.publish(a.configMaps, config)
		n.publish(a.secrets, hidden)
		kill()
		synctest.Wait()

		// One object was edited meanwhile, and the other is read late.
		n.configMap("app", false, "a", "2")
		n.table.Delete(keyvalue.Secret.Key("default", "app"))
		synced := make(chan struct{})
		a = n.start(t.Context(), synced)
		n.publish(a.configMaps, config)
		n.publish(a.secrets, hidden)
		time.Sleep(time.Minute)
		n.want(config, map[string]string{"a": "2"})
		n.want(hidden, map[string]string{"key": "s1"})
		n.wantEvents()
		close(synced)
		synctest.Wait()
		n.wantEvents(strings.Replace(failed, "config", "hidden", 1) +
			"waiting for Secret default/app; its files stay as they are")
		n.secret("app", "key", "s3")
		synctest.Wait()
		n.want(hidden, map[string]string{"key": "s3"})
		if err := a.secrets.Unpublish(t.Context(), hidden.Target); err != nil {
			t.Fatal(err)
		}
		if ok, err := volume.Mounted(hidden.Target, unix.TMPFS_MAGIC); ok || err != nil {
			t.Errorf("still mounted: %v", err)
		}
	})
}

func TestUpdateThatDoesNotFitIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		a := n.start(t.Context(), closed())
		n.secret("app", "key", "small")
		r := n.request(a.secrets, "config", corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "app"}})
		n.publish(a.secrets, r)
		n.secret("app", "key", strings.Repeat("x", 512<<10))
		synctest.Wait()
		n.want(r, map[string]string{"key": "small"})
		n.wantEvents(failed + `write file "key": write key: no space left on device`)
		if err := unix.Mount("", r.Target, "", unix.MS_REMOUNT, "size=1m"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // until the retry
		n.want(r, map[string]string{"key": strings.Repeat("x", 512<<10)})
		n.wantEvents()
	})
}

// issuer issues tokens that last for an hour, unless it has an error.
type issuer struct {
	mu     sync.Mutex
	issued int
	until  time.Time
	err    error
}

func (i *issuer) Issue(_ context.Context, p *corev1.Pod, v *corev1.Volume, source int) (map[string][]byte, time.Time,
	error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.err != nil {
		return nil, time.Time{}, i.err
	}
	if !time.Now().Before(i.until) {
		i.issued++
		i.until = time.Now().Add(time.Hour)
	}
	path := v.Projected.Sources[source].ServiceAccountToken.Path
	return map[string][]byte{path: fmt.Appendf(nil, "%s %d", p.Name, i.issued)}, i.until, nil
}

// answer makes the issuer issue a new token or, with an error, none.
func (i *issuer) answer(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.err, i.until = err, time.Time{}
}

func TestTokenIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.issuer = &issuer{}
		a := n.start(t.Context(), closed())
		r := n.request(a.projecteds, "config", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}},
		}})
		n.publish(a.projecteds, r)
		n.want(r, map[string]string{"token": "app 1"})
		time.Sleep(59 * time.Minute)
		synctest.Wait()
		n.want(r, map[string]string{"token": "app 1"})
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		n.want(r, map[string]string{"token": "app 2"})
	})
}

// A pod does not start without its first token. It keeps running with the token that it has.
func TestTokenStaysWhileTheIssuerIsUnavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, away, trouble := newNode(t), &issuer{}, errors.New("connection refused")
		n.issuer = away
		away.answer(trouble)
		life, kill := context.WithCancel(t.Context())
		a := n.start(life, closed())
		r := n.request(a.projecteds, "config", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}},
		}})
		if _, err := a.projecteds.Publish(t.Context(), r); !errors.Is(err, trouble) {
			t.Fatalf("without a first token: %v", err)
		}
		away.answer(nil)
		n.publish(a.projecteds, r)
		kill()
		synctest.Wait()

		away.answer(trouble)
		a = n.start(t.Context(), closed())
		n.publish(a.projecteds, r)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		n.want(r, map[string]string{"token": "app 1"})
		n.wantEvents(failed + "source 0: connection refused")
		away.answer(nil)
		time.Sleep(90 * time.Second)
		synctest.Wait()
		n.want(r, map[string]string{"token": "app 2"})
	})
}

// Files that an agent finds stay until the API server has reported the state of their object.
func TestFilesStayWhileTheirObjectIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		var heard atomic.Bool
		n.heard = func(object.Key) bool { return heard.Load() }
		life, kill := context.WithCancel(t.Context())
		a := n.start(life, closed())
		r := n.request(a.configMaps, "config", configMapSource("app", true))
		_, err := a.configMaps.Publish(t.Context(), r)
		if _, unknown := errors.AsType[*object.Unknown](err); !unknown {
			t.Fatalf("an optional one of which nothing is known: %v", err)
		}
		n.configMap("app", false, "a", "1")
		n.publish(a.configMaps, r)
		kill()
		synctest.Wait()

		n.table.Delete(keyvalue.ConfigMap.Key("default", "app"))
		a = n.start(t.Context(), closed())
		n.publish(a.configMaps, r)
		time.Sleep(time.Minute)
		n.want(r, map[string]string{"a": "1"})
		heard.Store(true)
		a.volumes.Changed(map[object.Key]bool{keyvalue.ConfigMap.Key("default", "app"): true})
		synctest.Wait()
		n.want(r, map[string]string{})
		n.wantEvents()
	})
}

// A hundred pods use one ConfigMap, and all of them get its change.
func TestManyPodsFollowOneConfigMap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		a := n.start(t.Context(), closed())
		n.configMap("app", false, "a", "1")
		requests := map[string]volume.Request{}
		for i := range 100 {
			name := fmt.Sprint("config", i)
			requests[name] = n.request(a.configMaps, name, configMapSource("app", false))
			n.publish(a.configMaps, requests[name])
		}
		for version := range 20 {
			n.configMap("app", false, "a", fmt.Sprint(version))
		}
		synctest.Wait()
		for _, name := range slices.Sorted(maps.Keys(requests)) {
			n.want(requests[name], map[string]string{"a": "19"})
		}
	})
}

// memoryLimit is the limit of every pod. It implements emptydir.Limits.
type memoryLimit int64

func (m memoryLimit) Memory(*corev1.Pod) int64 { return int64(m) }
