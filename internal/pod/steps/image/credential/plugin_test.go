package credential

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// script writes a plugin that counts its runs and prints an answer.
func script(t *testing.T, name, answer string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	text := fmt.Sprintf("#!/bin/sh\ncat > %[1]s/request\necho run >> %[1]s/runs\n%[2]s\n", dir, answer)
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func respond(cacheKey, more string) string {
	return fmt.Sprintf(
		`echo '{"apiVersion": "credentialprovider.kubelet.k8s.io/v1", "kind": "CredentialProviderResponse", `+
			`"cacheKeyType": %q%s, `+
			`"auth": {"*.registry.io": {"username": "'$USER_NAME'", "password": "p"}}}'`, cacheKey, more)
}

func providerOf(dir string) Provider {
	return Provider{Name: "plug", Path: filepath.Join(dir, "plug"), MatchImages: []string{"*.registry.io"},
		CacheDuration: time.Minute, Env: []string{"USER_NAME=me"}}
}

func runs(t *testing.T, dir string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "runs"))
	if err != nil {
		return 0
	}
	return strings.Count(string(text), "run")
}

func TestPluginCache(t *testing.T) {
	for _, c := range []struct {
		name, key, more string
		want            int // runs for the four repositories below, and again for the first one a minute later
	}{
		{"by image", "Image", "", 4},
		{"by registry", "Registry", "", 3},
		{"for all", "Global", "", 2},
		{"not at all", "Global", `, "cacheDuration": "0s"`, 5},
		{"for longer", "Global", `, "cacheDuration": "1h"`, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := script(t, "plug", respond(c.key, c.more))
			now := time.Unix(1000, 0)
			k := New(Options{RootDir: dir, HomeDir: dir, Providers: []Provider{providerOf(dir)}, Environ: os.Environ(),
				Now: func() time.Time {
					return now
				}})
			for _, repository := range []string{"a.registry.io/x", "a.registry.io/x", "a.registry.io/y",
				"b.registry.io/x", "other.io/x"} {
				found, err := k.Find(t.Context(), nil, repository, nil)
				if err != nil {
					t.Fatal(err)
				}
				if mine := strings.Contains(repository,
					"registry.io"); mine != (len(found) == 1 && found[0].Auth.Username == "me" &&
					found[0].Secret == nil) {
					t.Errorf("%s: %v", repository, found)
				}
			}
			now = now.Add(time.Minute)
			if _, err := k.Find(t.Context(), nil, "a.registry.io/x", nil); err != nil {
				t.Fatal(err)
			}
			if got := runs(t, dir); got != c.want {
				t.Errorf("%d runs, want %d", got, c.want)
			}
		})
	}
}

func TestPluginFaults(t *testing.T) {
	for name, c := range map[string]struct {
		answer, want string
		failed       float64 // runs, not answers
	}{
		"fails":         {"echo no access >&2; exit 3", `exit status 3: no access`, 1},
		"no JSON":       {"echo hello", "not JSON", 0},
		"another kind":  {`echo '{"kind": "Secret"}'`, `"Secret"`, 0},
		"unknown cache": {respond("Pod", ""), "must be Image, Registry or Global", 0},
		"too long":      {"head -c 2000000 /dev/zero", "longer than", 1},
		"hangs":         {"sleep 60", "did not answer", 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := script(t, "plug", c.answer)
			k := New(Options{RootDir: dir, Providers: []Provider{providerOf(dir)}, Environ: os.Environ(),
				Now: time.Now})
			reg := prometheus.NewPedanticRegistry()
			if err := k.Register(reg); err != nil {
				t.Fatal(err)
			}
			p := k.plugins[0]
			if name == "hangs" {
				p.timeout = 100 * time.Millisecond
			}
			if found, err := p.provide(t.Context(), "a.registry.io/x",
				nil); err == nil || !strings.Contains(err.Error(), c.want) || found != nil {
				t.Errorf("%v, error %v, want one with %q", found, err, c.want)
			}
			runs, err := testutil.GatherAndCount(reg, "kubelet_credential_provider_plugin_duration")
			failed := testutil.ToFloat64(k.metrics.failed.WithLabelValues("plug"))
			if err != nil || runs != 1 || failed != c.failed {
				t.Errorf("%d plugins ran, %v failed, %v", runs, failed, err)
			}
		})
	}
}

// The pod's secrets come before the node's configuration.
func TestFindOrder(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"),
		[]byte(`{"auths": {"registry.io": {"username": "node"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pull", UID: "1"}, Type: corev1.SecretTypeDockercfg,
		Data: map[string][]byte{corev1.DockerConfigKey: []byte(`{"registry.io": {"username": "pod"}}`)},
	}
	broken := secret.DeepCopy()
	broken.Name, broken.Data = "broken", nil
	found, err := New(Options{RootDir: dir, HomeDir: dir, Now: time.Now}).Find(t.Context(), nil, "registry.io/app",
		[]*corev1.Secret{broken, secret})
	if err == nil || !strings.Contains(err.Error(), "default/broken") {
		t.Errorf("error %v", err)
	}
	var users []string
	for _, c := range found {
		users = append(users, c.Auth.Username)
	}
	if diff := cmp.Diff([]string{"pod", "node"}, users); diff != "" || found[0].Secret.Name != "pull" ||
		len(found[0].Secret.Hash) != 64 {
		t.Errorf("%+v (-want +got):\n%s", found, diff)
	}
}

func TestLoad(t *testing.T) {
	bin := script(t, "plug", "")
	const head = "apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n"
	const good = "- {name: plug, matchImages: ['*.registry.io'], defaultCacheDuration: 1m, apiVersion: " +
		"credentialprovider.kubelet.k8s.io/v1, env: [{name: USER_NAME, value: me}]}\n"
	for name, c := range map[string]struct {
		text string
		want []string // in the error
	}{
		"good":  {head + good, nil},
		"twice": {head + good + good, []string{`provider "plug" occurs twice`}},
		"empty": {head + "  []", []string{"must have at least one"}},
		"wrong": {head + "- {name: ../x, matchImages: ['http://a'], apiVersion: v2}",
			[]string{"is not the name of a program", "is not HOST", "defaultCacheDuration: must be set",
				`"v2" is not supported`}},
		"gone": {head + strings.Replace(good, "plug", "gone", 1), []string{`provider "gone"`, "no such file"}},
		"kind": {"kind: Pod", []string{"must be a CredentialProviderConfig"}},
		"typo": {head + "- {nam: x}", []string{"unknown field"}},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "providers.yaml")
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			for _, path := range []string{file, filepath.Dir(file)} {
				got, err := Load(path, bin)
				if c.want == nil {
					if diff := cmp.Diff([]Provider{providerOf(bin)}, got); diff != "" || err != nil {
						t.Errorf("%v (-want +got):\n%s", err, diff)
					}
					continue
				}
				for _, want := range c.want {
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("error %v, want one with %q", err, want)
					}
				}
			}
		})
	}
}
