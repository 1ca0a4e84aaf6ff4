package credential

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// accounts are the service accounts of a cluster, with a token for each pod.
type accounts map[string]*corev1.ServiceAccount

func (a accounts) Account(_ context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	if account := a[namespace+"/"+name]; account != nil {
		return account, nil
	}
	return nil, errors.New("not found")
}

func (a accounts) PullToken(_ context.Context, p *corev1.Pod, account types.UID, audience string) (string, error) {
	return fmt.Sprintf("%s of %s for %s", p.UID, account, audience), nil
}

func podOf(uid types.UID, account string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: uid},
		Spec: corev1.PodSpec{ServiceAccountName: account}}
}

// granting returns a keyring with one plugin that echoes the token as the user.
func granting(t *testing.T, token TokenAttributes, password string) (k *Keyring, dir string) {
	t.Helper()
	dir = script(t, "plug",
		`echo "{\"apiVersion\": \"credentialprovider.kubelet.k8s.io/v1\", \"kind\": \"CredentialProviderResponse\", `+
			`\"cacheKeyType\": \"Global\", `+
			`\"auth\": {\"*.registry.io\": {\"username\": \"u\", \"password\": \"`+password+`\"}}}"`)
	p := providerOf(dir)
	p.Token = &token
	return New(Options{RootDir: dir, HomeDir: dir, Providers: []Provider{p}, Environ: os.Environ(), Now: time.Now,
		Accounts: accounts{
			"ns/builder": {ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "builder", UID: "sa-1",
				Annotations: map[string]string{"example.com/role": "r", "other": "o"}}},
			"ns/plain": {ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "plain", UID: "sa-2"}},
		}}), dir
}

// The plugin receives the pod's token and the annotations that it requests. Its answer belongs to the service account.
func TestGrant(t *testing.T) {
	k, dir := granting(t,
		TokenAttributes{Audience: "registry", Required: true, RequiredAnnotations: []string{"example.com/role"},
			OptionalAnnotations: []string{"none"}}, "p")
	found, err := k.Find(t.Context(), podOf("1", "builder"), "a.registry.io/x", nil)
	if err != nil {
		t.Fatal(err)
	}
	account := Secret{Kind: "ServiceAccount", UID: "sa-1", Namespace: "ns", Name: "builder", Hash: "sa-1"}
	if len(found) != 1 || *found[0].Secret != account {
		t.Fatalf("%+v", found)
	}
	request, err := os.ReadFile(filepath.Join(dir, "request"))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"kind":"CredentialProviderRequest","apiVersion":"credentialprovider.kubelet.k8s.io/v1",` +
		`"image":"a.registry.io/x","serviceAccountToken":"1 of sa-1 for ` +
		`registry","serviceAccountAnnotations":{"example.com/role":"r"}}`
	if diff := cmp.Diff(want, strings.TrimSpace(string(request))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	of, err := k.SecretsFor(t.Context(), podOf("2", "builder"), "a.registry.io/x", nil)
	if diff := cmp.Diff([]Secret{account}, of); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// TestGrants checks which pods the plugin runs for, and how often.
func TestGrants(t *testing.T) {
	for _, c := range []struct {
		name  string
		token TokenAttributes
		pods  []*corev1.Pod
		found []int // credentials of each
		runs  int
		err   string
	}{
		{"one answer for an account", TokenAttributes{},
			[]*corev1.Pod{podOf("1", "builder"), podOf("2", "builder"), podOf("3", "plain")}, []int{1, 1, 1}, 2, ""},
		{"one for a token", TokenAttributes{PerToken: true},
			[]*corev1.Pod{podOf("1", "builder"), podOf("2", "builder"), podOf("1", "builder")}, []int{1, 1, 1}, 2, ""},
		{"no account", TokenAttributes{}, []*corev1.Pod{podOf("1", ""), nil}, []int{1, 1}, 1, ""},
		{"no account where one is required", TokenAttributes{Required: true}, []*corev1.Pod{podOf("1", ""), nil},
			[]int{0, 0}, 0, ""},
		{"no annotation", TokenAttributes{Required: true, RequiredAnnotations: []string{"example.com/role"}},
			[]*corev1.Pod{podOf("1", "plain")}, []int{0}, 0, ""},
		{"no such account", TokenAttributes{}, []*corev1.Pod{podOf("1", "gone")}, []int{0}, 0,
			`run credential provider "plug": get service account ns/gone: not found`},
	} {
		t.Run(c.name, func(t *testing.T) {
			k, dir := granting(t, c.token, "p")
			for i, p := range c.pods {
				found, err := k.Find(t.Context(), p, "a.registry.io/x", nil)
				if (err == nil) != (c.err == "") || err != nil && err.Error() != c.err {
					t.Errorf("%d: error %v, want %q", i, err, c.err)
				}
				if len(found) != c.found[i] {
					t.Errorf("%d: %d credentials, want %d", i, len(found), c.found[i])
				}
			}
			if got := runs(t, dir); got != c.runs {
				t.Errorf("%d runs, want %d", got, c.runs)
			}
		})
	}
}

// A token that is the password belongs to one pod: it is not cached for the whole service account.
func TestEchoedToken(t *testing.T) {
	for perToken, want := range map[bool]int{false: 0, true: 1} {
		k, _ := granting(t, TokenAttributes{Audience: "a", PerToken: perToken}, "1 of sa-2 for a")
		found, err := k.Find(t.Context(), podOf("1", "plain"), "a.registry.io/x", nil)
		if len(found) != want || (err == nil) != perToken {
			t.Errorf("per token %t: %v, %v", perToken, found, err)
		}
	}
}

func TestTokenAttributes(t *testing.T) {
	const config = `{apiVersion: kubelet.config.k8s.io/v1, kind: CredentialProviderConfig, providers: [{name: plug, ` +
		`matchImages: [a.io], defaultCacheDuration: 0s, apiVersion: credentialprovider.kubelet.k8s.io/v1, ` +
		`tokenAttributes: %s}]}`
	got, err := parseProviders(fmt.Appendf(nil, config,
		`{serviceAccountTokenAudience: a, cacheType: Token, requireServiceAccount: true, `+
			`requiredServiceAccountAnnotationKeys: [x], optionalServiceAccountAnnotationKeys: [z]}`), "/bin")
	want := []Provider{{Name: "plug", Path: "/bin/plug", MatchImages: []string{"a.io"},
		Token: &TokenAttributes{Audience: "a", PerToken: true, Required: true, RequiredAnnotations: []string{"x"},
			OptionalAnnotations: []string{"z"}}}}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	const gate = "KubeletServiceAccountTokenForCredentialProviders"
	if err := WithoutTokens(got); err == nil || !strings.Contains(err.Error(), gate) {
		t.Errorf("error %v, want one with %s", err, gate)
	}
	if err := WithoutTokens([]Provider{{Name: "plug"}}); err != nil {
		t.Error(err)
	}
	_, err = parseProviders(fmt.Appendf(nil, config,
		`{cacheType: Pod, requireServiceAccount: false, requiredServiceAccountAnnotationKeys: [x, 'a b'], `+
			`optionalServiceAccountAnnotationKeys: [x]}`), "/bin")
	for _, want := range []string{"serviceAccountTokenAudience: must be set", `cacheType: "Pod"`,
		"requireServiceAccount: must be true", `"a b"`, `"x" occurs twice`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}
