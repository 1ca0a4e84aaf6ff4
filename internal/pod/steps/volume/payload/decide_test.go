package payload

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/object"
)

// says reports whether an error contains a text; "" means no error.
func says(err error, text string) bool {
	if text == "" {
		return err == nil
	}
	return err != nil && strings.Contains(err.Error(), text)
}

func TestCheckPath(t *testing.T) {
	long := strings.Repeat("n", maxName)
	tests := []struct{ path, want, err string }{
		{"app.conf", "app.conf", ""},
		{"a/b/c", "a/b/c", ""},
		{"./a//b/./c/", "a/b/c", ""},
		{"...", "", "must not start with '..'"},
		{".hidden", ".hidden", ""},
		{"a/..b", "a/..b", ""},
		{"a..", "a..", ""},
		{long, long, ""},
		{"", "", "must not be empty"},
		{".", "", "names no file"},
		{"a/..", "", "must not contain '..'"},
		{"..", "", "must not contain '..'"},
		{"../etc", "", "must not contain '..'"},
		{"a/../../b", "", "must not contain '..'"},
		{"..data", "", "must not start with '..'"},
		{"./..data", "", "must not start with '..'"},
		{"..2026_01_02_15_04_05.1/x", "", "must not start with '..'"},
		{"/etc/passwd", "", "must be relative"},
		{"a\x00b", "", "zero byte"},
		{long + "n", "", "name of more than 255 bytes"},
		{strings.Repeat("a/", 2048) + "b", "", "longer than 4096 bytes"},
	}
	for _, test := range tests {
		if got, err := CheckPath(test.path); got != test.want || !says(err, test.err) {
			t.Errorf("%.40q: %q, %v, want %q, %q", test.path, got, err, test.want, test.err)
		}
	}
}

func TestCheckedRefusesFilesThatAreDirectories(t *testing.T) {
	got, err := checked(Files{"a//b": {Data: []byte("1")}, "c": {}})
	if d := cmp.Diff(Files{"a/b": {Data: []byte("1")}, "c": {}}, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	if _, err := checked(Files{"a": {}, "a/b/c": {}}); !says(err, `path "a" is both a file and a directory`) {
		t.Errorf("got %v", err)
	}
}

func TestDeepestDirectories(t *testing.T) {
	files := Files{strings.Repeat("x/", 100) + "y": {}, "a/b/c": {}, "a-b/c": {}, "a/d/e": {}, "f": {}}
	// "a-b" is sorted between "a" and "a/b", so "a" is listed too.
	want := []string{"a", "a-b", "a/b", "a/d", strings.Repeat("x/", 99) + "x"}
	if d := cmp.Diff(want, deepest(directories(files))); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestReferenceFiles(t *testing.T) {
	key := object.Key{Kind: object.ConfigMap, Namespace: "default", Name: "app"}
	data := map[string][]byte{"one": []byte("1"), "two": []byte("2")}
	tests := []struct {
		name  string
		r     Reference
		want  Files
		lacks string
	}{
		{"all", Reference{}, Files{"one": {Data: []byte("1"), Mode: 0o640}, "two": {Data: []byte("2"), Mode: 0o640}},
			""},
		{"items", Reference{Items: []corev1.KeyToPath{{Key: "one", Path: "etc/first"},
			{Key: "two", Path: "second", Mode: new(int32(0o400))}}},
			Files{"etc/first": {Data: []byte("1"), Mode: 0o640}, "second": {Data: []byte("2"), Mode: 0o400}}, ""},
		{"missing",
			Reference{Items: []corev1.KeyToPath{{Key: "x", Path: "x"}, {Key: "one", Path: "one"},
				{Key: "y", Path: "y"}}},
			Files{"one": {Data: []byte("1"), Mode: 0o640}}, "no key x, no key y"},
		{"optional",
			Reference{Items: []corev1.KeyToPath{{Key: "x", Path: "x"}, {Key: "one", Path: "one"}}, Optional: new(true)},
			Files{"one": {Data: []byte("1"), Mode: 0o640}}, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := test.r.Files(key, data, 0o640, "no key %s")
			if d := cmp.Diff(test.want, got); d != "" || !says(err, test.lacks) {
				t.Errorf("%v (-want +got):\n%s", err, d)
			}
			if keys, only := object.Waits(err); test.lacks != "" && (!only || keys[0] != key) {
				t.Errorf("waits for %v, %v", keys, only)
			}
		})
	}
}

func TestModesWithAndWithoutAGroup(t *testing.T) {
	if got := Mode(nil, new(int32(0o600)), new(int32(0o400))); got != 0o600 {
		t.Errorf("mode %o", got)
	}
	if got := Mode(nil, nil); got != 0o644 {
		t.Errorf("default mode %o", got)
	}
	nobody, group := owner{}, owner{new(int64(4711))}
	got := []uint32{nobody.fileMode(File{Mode: 0o400}), nobody.dirMode(), group.fileMode(File{Mode: 0o400}),
		group.fileMode(File{Mode: 0o600}), group.dirMode()}
	if d := cmp.Diff([]uint32{0o400, 0o755, 0o440, 0o640, 0o2755}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestVersionNamesAndStaleVersions(t *testing.T) {
	now := time.Date(2026, 1, 2, 15, 4, 5, 250, time.FixedZone("", 3600))
	name := versionName(now, 3)
	if name != "..2026_01_02_14_04_05.000000253" {
		t.Errorf("name %s", name)
	}
	if at, ok := versionTime(name); !ok || !at.Equal(now.Add(3)) {
		t.Errorf("time %v, %v", at, ok)
	}
	kubelets := "..2026_01_02_14_04_05.1234567890"
	if at, ok := versionTime(kubelets); !ok || !at.Equal(now.Truncate(time.Second)) {
		t.Errorf("the kubelet's: %v, %v", at, ok)
	}
	for _, other := range []string{"", "..data", "..2026_01_02_14_04_05.", "..2026_13_02_14_04_05.1",
		"..2026_01_02_14_04_05.1/x", "x2026_01_02_14_04_05.1"} {
		if _, ok := versionTime(other); ok {
			t.Errorf("%q is a version", other)
		}
	}
	const later = "..2026_01_02_14_04_07.000000000"
	names := []string{name, kubelets, later, "..data", "..data_tmp", "app", "..mine"}
	got := [][]string{
		stale(names, later, now.Add(grace)),
		stale(names, name, now.Add(grace+3)),
		stale(names, name, now.Add(-time.Hour)), // the clock was set back
	}
	want := [][]string{{kubelets, "..data_tmp"}, {kubelets, "..data_tmp"}, {kubelets, later, "..data_tmp"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("stale (-want +got):\n%s", d)
	}
}

func TestNested(t *testing.T) {
	mounts := func(list ...string) corev1.Container {
		var c corev1.Container
		for i := 0; i < len(list); i += 2 {
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: list[i], MountPath: list[i+1]})
		}
		return c
	}
	part := mounts("config", "/etc", "x", "/etc/x")
	part.VolumeMounts[0].SubPath = "app"
	tests := []struct {
		name string
		c    corev1.Container
		want []string
	}{
		{"none", mounts("config", "/etc/app", "x", "/etc/apple", "y", "/var"), nil},
		{"one", mounts("x", "/etc/app/run", "config", "/etc/app"), []string{"run"}},
		{"deep", mounts("config", "/etc/app/", "x", "/etc/app/a/b", "y", "/etc/app/a/b/c", "z", "/etc/app/a.d"),
			[]string{"a.d", "a/b"}},
		{"around", mounts("config", "/etc/app", "x", "/etc"), nil},
		{"climbing", mounts("config", "/etc/app", "x", "/etc/app/../../app", "y", "../etc/app/z"), []string{"z"}},
		{"of a part", part, nil},
		{"twice", mounts("config", "/a", "config", "/b", "x", "/a/x", "y", "/b/y"), []string{"x", "y"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := nested(&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{test.c}}}, "config")
			if d := cmp.Diff(test.want, got); d != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, d)
			}
		})
	}
}
