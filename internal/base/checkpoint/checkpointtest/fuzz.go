package checkpointtest

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// File is a state file and how its owner reads it.
type File struct {
	// Name is the path of the file below the owner's directory.
	Name    string
	Version int
	// Seeds are data as the owner writes it, in JSON.
	Seeds []string
	// Read reads the file below dir as a new agent would, and uses what it has read. It returns the resulting state,
	// and everything that it reported: the text of an error or the lines of a log.
	Read func(t *testing.T, dir string) (state, report string)
}

// Fuzz runs f with changed files. An input is the whole file, or only its data: then the envelope around it is valid.
func Fuzz(f *testing.F, file File) {
	for _, seed := range file.Seeds {
		f.Add([]byte(seed), true)
		f.Add(seal(file.Version, []byte(seed)), false)
	}
	f.Add(seal(file.Version+1, []byte(file.Seeds[0])), false)
	f.Add([]byte("null"), true)
	f.Add([]byte{}, false)
	f.Fuzz(func(t *testing.T, input []byte, sealed bool) {
		content := input
		if sealed {
			var compact bytes.Buffer
			if json.Compact(&compact, input) != nil {
				t.Skip("no owner writes data that is not JSON")
			}
			content = seal(file.Version, compact.Bytes())
		}
		file.check(t, content)
	})
}

func (file File) check(t *testing.T, content []byte) {
	dir := t.TempDir()
	path := filepath.Join(dir, file.Name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, content, 0o600)); err != nil {
		t.Fatal(err)
	}
	state, report := file.Read(t, dir)
	aside := movedAside(t, path)
	if len(aside) > 1 || len(aside) == 1 && !bytes.Equal(aside[0], content) {
		t.Fatalf("the file was kept as %q, want one file with its content %q", aside, content)
	}
	if len(aside) == 1 && !strings.Contains(report, filepath.Base(path)) {
		t.Errorf("the report does not name %s: %q", filepath.Base(path), report)
	}
	if !valid(content, file.Version) && len(aside) == 0 {
		t.Errorf("the file is damaged and was not moved aside: %q", content)
	}
	if len(aside) == 1 {
		if none, _ := file.Read(t, t.TempDir()); none != state {
			t.Errorf("a damaged file is not read as an absent one (-absent +damaged):\n%s", cmp.Diff(none, state))
		}
		return
	}
	if again, _ := file.Read(t, dir); again != state {
		t.Errorf("the second agent reads another state (-first +second):\n%s", cmp.Diff(state, again))
	}
}

// movedAside returns the content of each file that a damaged file was renamed to.
func movedAside(t *testing.T, path string) (all [][]byte) {
	t.Helper()
	for _, pattern := range []string{path + ".corrupt-*", path + ".version-*"} {
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			content, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, content)
		}
	}
	return all
}

// seal is the content of a state file, as doc.go of package checkpoint describes it.
func seal(version int, data []byte) []byte {
	return fmt.Appendf(nil, `{"version":%d,"checksum":%q,"data":%s}`+"\n", version, checksum(version, data), data)
}

func checksum(version int, data []byte) string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256(fmt.Appendf(nil, "%d\n%s", version, data)))
}

// valid reports whether content is a complete state file of this version.
func valid(content []byte, version int) bool {
	var e struct {
		Version  int
		Checksum string
		Data     json.RawMessage
	}
	d := json.NewDecoder(bytes.NewReader(content))
	if d.Decode(&e) != nil {
		return false
	}
	_, err := d.Token()
	return errors.Is(err, io.EOF) && e.Version == version && e.Checksum == checksum(e.Version, e.Data)
}

// Show formats a state for comparison: the value as JSON, or its Go form if JSON has none.
func Show(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("%+v", v)
	}
	return string(text)
}

// Text is the text of an error; "" for none and for a file that does not exist.
func Text(err error) string {
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return err.Error()
}
