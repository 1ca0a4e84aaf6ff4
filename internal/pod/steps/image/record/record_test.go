package record

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/berth-run/berth/internal/pod/steps/image/credential"
)

func secret(name, hash string) credential.Secret {
	return credential.Secret{UID: name, Namespace: "default", Name: name, Hash: hash}
}

func TestDecide(t *testing.T) {
	const repository = "registry.io/app"
	a, b, rotated, copied := secret("a", "1"), secret("b", "2"), secret("a", "3"), secret("c", "1")
	bySecret := &Pulled{map[string]Access{repository: {Secrets: []credential.Secret{a}}}}
	byNode := &Pulled{map[string]Access{repository: {Node: true}}}
	for name, c := range map[string]struct {
		policy  v1beta1.ImagePullCredentialsVerificationPolicy
		known   *Pulled
		ours    bool
		have    []credential.Secret
		allowed bool
		learn   *credential.Secret
	}{
		"never":     {policy: v1beta1.NeverVerify, known: bySecret, ours: true, allowed: true},
		"preloaded": {policy: v1beta1.NeverVerifyPreloadedImages, allowed: true},
		"pulled by a killed agent": {policy: v1beta1.NeverVerifyPreloadedImages, ours: true,
			have: []credential.Secret{a}},
		"pulled with another secret": {policy: v1beta1.NeverVerifyPreloadedImages, known: bySecret, ours: true,
			have: []credential.Secret{b}},
		"pulled without one": {policy: v1beta1.NeverVerifyPreloadedImages, known: byNode, ours: true,
			allowed: true},
		"pulled with this secret": {policy: v1beta1.NeverVerifyPreloadedImages, known: bySecret, ours: true,
			have: []credential.Secret{b, a}, allowed: true},
		"which has changed": {policy: v1beta1.NeverVerifyPreloadedImages, known: bySecret, ours: true,
			have: []credential.Secret{rotated}, allowed: true, learn: &rotated},
		"or has another name": {policy: v1beta1.NeverVerifyPreloadedImages, known: bySecret, ours: true,
			have: []credential.Secret{copied}, allowed: true, learn: &copied},
		"allowed by name":    {policy: v1beta1.NeverVerifyAllowlistedImages, allowed: true},
		"always, preloaded":  {policy: v1beta1.AlwaysVerify},
		"always, the node's": {policy: v1beta1.AlwaysVerify, known: byNode, ours: true, allowed: true},
	} {
		allowed, learn := decide(Policy{Verification: c.policy, Allowlist: []string{"registry.io/*"}}, repository,
			c.known, c.ours, c.have)
		if diff := cmp.Diff(c.learn, learn); allowed != c.allowed || diff != "" {
			t.Errorf("%s: %v, learns (-want +got):\n%s", name, allowed, diff)
		}
	}
}

func TestAllows(t *testing.T) {
	for _, c := range []struct {
		pattern, repository string
		want                bool
	}{
		{"busybox", "docker.io/library/busybox", true},
		{"registry.io/app", "registry.io/app", true},
		{"registry.io/app", "registry.io/app2", false},
		{"registry.io/team/*", "registry.io/team/app", true},
		{"registry.io/team/*", "registry.io/teams/app", false},
	} {
		if got := allows(c.pattern, c.repository); got != c.want {
			t.Errorf("%s allows %s: %v", c.pattern, c.repository, got)
		}
	}
}

// open returns the Records that an agent loads from dir.
func open(t *testing.T, dir string) *Records {
	t.Helper()
	r := New(Options{Dir: dir, Policy: Policy{Verification: v1beta1.NeverVerifyPreloadedImages},
		Log: slog.New(slog.DiscardHandler)})
	if err := r.Load(); err != nil {
		t.Fatal(err)
	}
	return r
}

// The records survive a kill at every point of a pull.
func TestRecordsOutliveTheAgent(t *testing.T) {
	const image, repository, id = "registry.io/app:1", "registry.io/app", "sha256:1"
	dir := t.TempDir()
	allowed := func(r *Records, have ...credential.Secret) bool {
		return r.Allowed(image, repository, id, func() []credential.Secret { return have })
	}
	mine, other := secret("mine", "1"), secret("other", "2")
	r := open(t, dir)
	if !allowed(r) {
		t.Error("a preloaded image is refused")
	}
	if err := r.Begin("registry.io/gone:1"); err != nil {
		t.Fatal(err)
	}
	if err := r.Fail("registry.io/gone:1"); err != nil {
		t.Fatal(err)
	}
	if err := r.Begin(image); err != nil {
		t.Fatal(err)
	}
	if allowed(r, mine) {
		t.Error("an image that is being pulled can be used")
	}
	r = open(t, dir) // killed
	if !r.unfinished[image] || len(r.unfinished) != 1 || allowed(r, mine) {
		t.Errorf("after a kill: unfinished %v", r.unfinished)
	}
	if err := r.Begin(image); err != nil {
		t.Fatal(err)
	}
	if err := r.End(image, repository, id, &mine); err != nil {
		t.Fatal(err)
	}
	r = open(t, dir)
	if len(r.unfinished) != 0 || !allowed(r, mine) || allowed(r, other) || allowed(r) {
		t.Errorf("unfinished %v, pulled %v", r.unfinished, r.pulled)
	}
	if err := r.Begin("registry.io/more:1"); err != nil {
		t.Fatal(err)
	}
	r.Allowed("registry.io/preloaded:1", "registry.io/preloaded", "other", nil)
	reg := prometheus.NewPedanticRegistry()
	if err := r.Register(reg); err != nil {
		t.Fatal(err)
	}
	if err := testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP kubelet_imagemanager_image_mustpull_checks_total Number of checks whether a pod may use an image, by result.
# TYPE kubelet_imagemanager_image_mustpull_checks_total counter
kubelet_imagemanager_image_mustpull_checks_total{result="credentialPolicyAllowed"} 1
kubelet_imagemanager_image_mustpull_checks_total{result="credentialRecordFound"} 1
kubelet_imagemanager_image_mustpull_checks_total{result="mustAuthenticate"} 2
# HELP kubelet_imagemanager_ondisk_pulledrecords Number of present images that this node has pulled.
# TYPE kubelet_imagemanager_ondisk_pulledrecords gauge
kubelet_imagemanager_ondisk_pulledrecords 1
# HELP kubelet_imagemanager_ondisk_pullintents Number of images whose pull has begun and has not ended.
# TYPE kubelet_imagemanager_ondisk_pullintents gauge
kubelet_imagemanager_ondisk_pullintents 1
`)); err != nil {
		t.Error(err)
	}
	if err := r.Fail("registry.io/more:1"); err != nil {
		t.Fatal(err)
	}
	damage(t, dir)
	if r = open(t, dir); allowed(r, mine) {
		t.Error("a damaged record gives access")
	}
	if err := r.Forget(id); err != nil {
		t.Fatal(err)
	}
	if r = open(t, dir); !allowed(r) {
		t.Error("an image that was removed and loaded again is not preloaded")
	}
}

func damage(t *testing.T, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "pulled", "*.json"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	if err := os.WriteFile(files[0], []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
}
