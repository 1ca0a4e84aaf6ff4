package directory

import (
	"errors"
	"testing"

	"github.com/berth-run/berth/internal/model/object"
)

func TestLossTellsARemovedFileFromAMissingDirectory(t *testing.T) {
	was := object.Directory{Device: 1, Inode: 2, Handle: "a"}
	mounted := object.Directory{Device: 1, Inode: 2, Handle: "a", Mount: true}
	anew := object.Directory{Device: 1, Inode: 2, Handle: "b"}
	elsewhere := object.Directory{Device: 3, Inode: 2, Handle: "a"}
	for _, tt := range []struct {
		name  string
		last  object.Directory
		known bool
		at    found
		err   error
		want  string
	}{
		{"nothing known, nothing there", object.Directory{}, false, found{}, nil, ""},
		{"nothing known, unreadable", object.Directory{}, false, found{}, errors.New("EIO"), ""},
		{"files removed", was, true, found{dir: was}, nil, ""},
		{"directory removed", was, true, found{}, nil, "does not exist"},
		{"directory unreadable", was, true, found{}, errors.New("EIO"), "cannot be read (EIO)"},
		{"made anew", was, true, found{dir: anew}, nil, ""},
		{"replaced", was, true, found{dir: elsewhere, files: 1}, nil, ""},
		{"unmounted", mounted, true, found{dir: elsewhere}, nil,
			"is empty and on another file system than its manifests were"},
		{"bind mount of the same device unmounted", mounted, true, found{dir: anew}, nil,
			"is empty and on another file system than its manifests were"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := loss(tt.last, tt.known, tt.at, tt.err); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}
