package render

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
)

// sources returns the Sources of the container in testdata/pods/env-sources.yaml.
func sources() Sources {
	return Sources{
		Objects: map[object.Key]runtime.Object{
			{Kind: object.ConfigMap, Namespace: "shop", Name: "app"}: &corev1.ConfigMap{
				Data:       map[string]string{"b": "from the map", "a": "1", "log.level": "info", "1st": "x"},
				BinaryData: map[string][]byte{"binary": {1}}},
			{Kind: object.Secret, Namespace: "shop",
				Name: "login"}: &corev1.Secret{Data: map[string][]byte{"user": []byte("ada"),
				"password": []byte("$(user)")}},
		},
		Files:    map[EnvFile]string{{"work", "out/env"}: "# made by init\nTOKEN='two\nlines' # done\n"},
		Services: map[string]string{"DB_HOST": "10.0.0.7", "DB_PORT": "5432"},
	}
}

func TestNeeds(t *testing.T) {
	c, _ := pod.FindContainer(readPod(t, "testdata/pods/env-sources.yaml"), "app")
	objects, files := Needs("shop", c)
	want := []object.Key{
		{Kind: object.ConfigMap, Namespace: "shop", Name: "app"},
		{Kind: object.ConfigMap, Namespace: "shop", Name: "gone"},
		{Kind: object.Secret, Namespace: "shop", Name: "login"},
	}
	if diff := cmp.Diff(want, objects); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]EnvFile{{"work", "out/env"}, {"work", "gone"}}, files); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// An object without the key, or with an unusable value, gives an error in the kubelet's words, where the kubelet has an
// error. The container start runs again when the object changes.
func TestEnvironmentLacks(t *testing.T) {
	app, login := object.Key{Kind: object.ConfigMap, Namespace: "shop", Name: "app"},
		object.Key{Kind: object.Secret, Namespace: "shop", Name: "login"}
	in := Input{Container: pod.Container{Container: &corev1.Container{}},
		Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}}, Sources: Sources{
			Objects: map[object.Key]runtime.Object{
				app:   &corev1.ConfigMap{Data: map[string]string{"nul": "a\x00b"}},
				login: &corev1.Secret{Data: map[string][]byte{"a=b": []byte("x"), "c": []byte("y")}},
			},
			Files: map[EnvFile]string{{"work", "env"}: "A=1\n"},
		}}
	configMap := func(key string) corev1.EnvVarSource {
		return corev1.EnvVarSource{
			ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "app"}, Key: key}}
	}
	file := func(path string) corev1.EnvVarSource {
		return corev1.EnvVarSource{FileKeyRef: &corev1.FileKeySelector{VolumeName: "work", Path: path, Key: "A"}}
	}
	for name, c := range map[string]struct {
		from  corev1.EnvVarSource
		want  string
		waits []object.Key
	}{
		"no key": {configMap("gone"), "couldn't find key gone in ConfigMap shop/app", []object.Key{app}},
		"a NUL byte": {configMap("nul"),
			"key nul in ConfigMap shop/app has a NUL byte, which no environment variable can hold", []object.Key{app}},
		"no file": {file("gone"), `environment variable "X": file "gone" is not in volume "work"`, nil},
		"a bad file": {file("env"),
			`environment variable "X": couldn't parse env file "env" of volume "work": line 1: the value must be in ` +
				`single quotes`, nil},
		"no such key": {
			corev1.EnvVarSource{
				SecretKeyRef: &corev1.SecretKeySelector{
					LocalObjectReference: corev1.LocalObjectReference{Name: "login"}, Key: "k"}},
			"couldn't find key k in Secret shop/login", []object.Key{login}},
	} {
		in.Container.Env = []corev1.EnvVar{{Name: "X", ValueFrom: &c.from}}
		_, err := environment(in)
		waits, _ := object.Waits(err)
		if err == nil || err.Error() != c.want || !cmp.Equal(waits, c.waits) {
			t.Errorf("%s: %v, waits for %v; want %s, %v", name, err, waits, c.want, c.waits)
		}
	}

	in.Container.Env = nil
	in.Container.EnvFrom = []corev1.EnvFromSource{
		{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "login"}}}}
	env, err := environment(in)
	if err != nil || !cmp.Equal(env.values, map[string]string{"c": "y"}) {
		t.Errorf("a name that no variable can have: %v, %v", env, err)
	}
	want := []string{
		"Keys [a=b] from the EnvFrom secret shop/login were skipped since they are considered invalid environment " +
			"variable names."}
	if diff := cmp.Diff(want, Skipped(in)); diff != "" {
		t.Errorf("skipped (-want +got):\n%s", diff)
	}
}

func TestParseEnvFile(t *testing.T) {
	for text, want := range map[string]string{
		"A='x'":                       "x",
		"":                            "",
		"\n \t\n# A='no'\n\tA='x'\n":  "x",
		"B='y'\nA='x'\nA='second'\n":  "x",
		"A='one\r\n two\n'\n":         "one\n two\n",
		"A='x' # said 'so'\nnonsense": "x",
		"A= 'x'\n":                    "",
		"B= what ever\nA='x'":         "x",
		"B='A='\nA='#'":               "#",
		"A=''":                        "",
		"A='\\n$x\"'":                 "\\n$x\"",
		"nonsense\nA='x'":             "line 1: there is no '='",
		"A ='x'":                      "line 1: the variable's name must stand directly before '=', without a space",
		"='x'":                        "line 1: the variable's name must stand directly before '=', without a space",
		"# one\nA=x":                  "line 2: the value must be in single quotes",
		"B=\nA='x'":                   "line 1: the value must be in single quotes",
		"B='\n\n'x\nA='x'":            "line 3: only a comment may follow the closing quote",
		"B='y'\nA='x\n\n":             "line 2: the quote that begins there is not closed",
	} {
		got, err := parseEnvFile(text, "A")
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// A properly quoted value is read back unchanged, whatever it contains.
func FuzzParseEnvFile(f *testing.F) {
	f.Add("A='x'\nB='y", "plain")
	f.Add("A= \n#\n'", "two\nlines")
	f.Fuzz(func(t *testing.T, text, value string) {
		if got, err := parseEnvFile(text, "A"); err == nil && strings.ContainsRune(got, '\'') {
			t.Errorf("%q: the value %q has a quote", text, got)
		}
		value = strings.NewReplacer("'", "", "\r", "").Replace(value)
		got, err := parseEnvFile("# a comment\nOTHER='\n'\nNAME='"+value+"'\n"+text, "NAME")
		if err != nil || got != value {
			t.Errorf("%q came back as %q, %v", value, got, err)
		}
	})
}
