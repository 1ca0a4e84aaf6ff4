package credential

import (
	"encoding/base64"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, repository string
		want                bool
	}{
		{"registry.io", "registry.io/team/app", true},
		{"registry.io", "other.io/team/app", false},
		{"*.io", "registry.io/app", true},
		{"*.io", "a.registry.io/app", false},
		{"*.*.io", "a.registry.io/app", true},
		{"app*.k8s.io", "apps.k8s.io/x", true},
		{"k8s.*", "k8s.dev/x", true},
		{"registry.io:8080", "registry.io:8080/app", true},
		{"registry.io", "registry.io:8080/app", false},
		{"registry.io:8080", "registry.io/app", false},
		{"registry.io/team", "registry.io/team/app", true},
		{"registry.io/team", "registry.io/other/app", false},
		{"registry.io/te", "registry.io/team/app", true}, // a textual prefix, as in the kubelet
		{"[", "registry.io/app", false},
	} {
		if got := matches(c.pattern, c.repository); got != c.want {
			t.Errorf("%s covers %s: %v", c.pattern, c.repository, got)
		}
	}
}

func TestFind(t *testing.T) {
	auth := base64.StdEncoding.EncodeToString([]byte("hub:word:with:colons"))
	all, err := parseConfigJSON([]byte(`{"auths": {
		"https://index.docker.io/v1/": {"auth": "` + auth + `"},
		"registry.io": {"username": "host", "password": "p"},
		"http://registry.io/v2/team/": {"username": "team", "password": "p"},
		"*.io": {"username": "glob", "password": "p"},
		"token.dev": {"identitytoken": "t"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for repository, want := range map[string][]entry{
		"registry.io/team/app": {{Username: "team", Password: "p"}, {Username: "host", Password: "p"},
			{Username: "glob", Password: "p"}},
		"registry.io/other":         {{Username: "host", Password: "p"}, {Username: "glob", Password: "p"}},
		"docker.io/library/busybox": {{Username: "glob", Password: "p"}},
		"token.dev/app":             {{IdentityToken: "t"}},
		"localhost:5000/app":        nil,
	} {
		if diff := cmp.Diff(want, all.find(repository)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", repository, diff)
		}
	}
	delete(all, "*.io")
	want := []entry{{Username: "hub", Password: "word:with:colons"}}
	if diff := cmp.Diff(want, all.find("docker.io/library/busybox")); diff != "" {
		t.Errorf("the default registry (-want +got):\n%s", diff)
	}
}

func TestParseFaults(t *testing.T) {
	for _, text := range []string{"", "{", "[]", `{"auths": {"a": {"auth": "%"}}}`,
		`{"auths": {"a": {"auth": "YWJj"}}}`} {
		if all, err := parseConfigJSON([]byte(text)); err == nil {
			t.Errorf("%q is %v", text, all)
		}
	}
	all, err := parseConfig([]byte(`{"a.io": {"username": "u", "password": "p"}}`))
	if diff := cmp.Diff(entries{"a.io": {Username: "u", Password: "p"}}, all); diff != "" || err != nil {
		t.Errorf("dockercfg: %v (-want +got):\n%s", err, diff)
	}
}

// Any content of a Secret is either an error or gives entries that can be searched.
func FuzzFind(f *testing.F) {
	f.Add([]byte(`{"auths": {"https://index.docker.io/v1/": {"auth": "YTpi"}}}`), "docker.io/library/a")
	f.Add([]byte(`{"auths": {"[::1]:80/a": {}, "*.*:1": {}, "%": {}, "": {}}}`), "[::1]:80/a")
	f.Fuzz(func(t *testing.T, text []byte, repository string) {
		all, err := parseConfigJSON(text)
		if found := all.find(repository); len(found) > len(all) || err != nil && len(found) > 0 {
			t.Errorf("%d entries of %d, %v", len(found), len(all), err)
		}
	})
}
