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
			err: "b: runtimes.kata: binary is missing: set the absolute path of an OCI runtime\n" +
				"b: runtimes.youki: binary is missing: set the absolute path of an OCI runtime",
		},
		"relative": {
			files: []string{`{"crun": {"binary": "crun"}}`},
			err:   `a: runtimes.crun: binary "crun" is not an absolute path`,
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
