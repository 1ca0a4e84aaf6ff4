package embedded

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadHandlers(t *testing.T) {
	for name, test := range map[string]struct {
		files []string
		want  map[string]Handler
		err   string
	}{
		"none": {files: []string{"null"}, want: map[string]Handler{}},
		"changed by a later file": {
			files: []string{
				`{"crun": {"binary": "/usr/bin/crun", "podAnnotations": ["a", "b"]}, "old": {"binary": "/old"}}`,
				`{"crun": {"options": {"root": "/run/crun"}, "podAnnotations": ["c"]}, "old": null}`,
			},
			want: map[string]Handler{"crun": {
				Binary: "/usr/bin/crun", Options: HandlerOptions{Root: "/run/crun"}, PodAnnotations: []string{"c"},
			}},
		},
		"unknown field": {
			files: []string{`{"crun": {"binry": "/usr/bin/crun"}}`},
			err:   `a: runtimes.crun: json: unknown field "binry"`,
		},
		"no object": {
			files: []string{`["crun"]`},
			err: "a: runtimes: json: cannot unmarshal array into Go value of type " +
				"map[string]json.RawMessage",
		},
		"own name": {
			files: []string{`{"runc": {"binary": "/usr/bin/runc"}}`},
			err:   `a: runtimes.runc: "runc" is the handler of the binary's own runc: choose another name`,
		},
		"no binary": {
			files: []string{`{"crun": {"binary": "/crun"}}`, `{"kata": {}, "youki": {}}`},
			err: "b: runtimes.kata: binary is missing: set the absolute path of an OCI runtime, or the name of a " +
				"shim in shim\nb: runtimes.youki: binary is missing: set the absolute path of an OCI runtime, or the " +
				"name of a shim in shim",
		},
		"relative": {
			files: []string{`{"crun": {"binary": "crun"}}`},
			err:   `a: runtimes.crun: binary "crun" is not an absolute path`,
		},
		"shims": {
			files: []string{`{"kata": {"shim": "io.containerd.kata.v2"}, "runsc": {"shim": "io.containerd.runsc.v1",
				"binary": "/opt/shim", "options": {"configPath": "/etc/runsc.toml", "typeURL": "t"}}}`},
			want: map[string]Handler{
				"kata": {Shim: "io.containerd.kata.v2"},
				"runsc": {Shim: "io.containerd.runsc.v1", Binary: "/opt/shim",
					Options: HandlerOptions{ConfigPath: "/etc/runsc.toml", TypeURL: "t"}},
			},
		},
		"own shim": {
			files: []string{`{"x": {"shim": "io.containerd.runc.v2", "binary": "/crun"}}`},
			err: `a: runtimes.x: shim "io.containerd.runc.v2" is built in: remove it, and set binary to an OCI ` +
				`runtime`,
		},
		"no name of a shim": {
			files: []string{`{"x": {"shim": "/bin/containerd-shim-kata-v2"}}`},
			err: `a: runtimes.x: shim "/bin/containerd-shim-kata-v2" is not the name of a containerd shim, such as ` +
				`io.containerd.kata.v2; set the path of its program in binary`,
		},
		"relative program of a shim": {
			files: []string{`{"x": {"shim": "io.containerd.kata.v2", "binary": "kata"}}`},
			err:   `a: runtimes.x: binary "kata" is not an absolute path`,
		},
		"options of an OCI runtime with a shim": {
			files: []string{`{"x": {"shim": "io.containerd.kata.v2", "options": {"root": "/r"}}}`},
			err: `a: runtimes.x: options.root, noPivotRoot and noNewKeyring are for OCI runtimes: remove shim, or ` +
				`set options.configPath to a file of the shim that has them`,
		},
		"options of a shim without one": {
			files: []string{`{"x": {"binary": "/crun", "options": {"configPath": "/c"}}}`},
			err:   `a: runtimes.x: options.configPath and options.typeURL are for shims: set shim, or remove them`,
		},
		"relative configuration of a shim": {
			files: []string{`{"x": {"shim": "io.containerd.kata.v2", "options": {"configPath": "c"}}}`},
			err:   `a: runtimes.x: options.configPath "c" is not an absolute path`,
		},
		"relative root": {
			files: []string{`{"crun": {"binary": "/crun", "options": {"root": "x"}}}`},
			err:   `a: runtimes.crun: options.root "x" is not an absolute path`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			var files []Source
			for i, text := range test.files {
				var value any
				if err := json.Unmarshal([]byte(text), &value); err != nil {
					t.Fatal(err)
				}
				files = append(files, Source{File: string(rune('a' + i)), Value: value})
			}
			got, err := ReadHandlers(files)
			message := ""
			if err != nil {
				message = err.Error()
			}
			if message != test.err {
				t.Fatalf("error %q, want %q", message, test.err)
			}
			if diff := cmp.Diff(test.want, got); err == nil && diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
