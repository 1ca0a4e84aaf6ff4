package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Root is where the settings are files.
const Root = "/proc/sys"

// setting is a file below Root and what is to be in it.
type setting struct {
	name string
	want int
}

// settings are a kubelet's: memory is overcommitted, which requests and limits of pods
// bound; a machine that runs out of it ends processes and does not stop; one whose kernel
// has failed starts again after 10 s; and there are keys for all containers that root runs
// (keyrings(7): one each).
func settings() []setting {
	return []setting{
		{"vm/overcommit_memory", 1}, {"vm/panic_on_oom", 0},
		{"kernel/panic", 10}, {"kernel/panic_on_oops", 1},
		{"kernel/keys/root_maxkeys", 1_000_000}, {"kernel/keys/root_maxbytes", 25_000_000},
	}
}

// Names are the files below Root that Set may write.
func Names() []string {
	var all []string
	for _, s := range settings() {
		all = append(all, s.name)
	}
	return all
}

// Wrong says of each setting that is another what it is and what it should be, in
// sysctl's words: "vm.overcommit_memory is 0, not 1".
func Wrong(root fs.FS) ([]string, error) {
	var all []string
	for _, s := range settings() {
		text, err := fs.ReadFile(root, s.name)
		if err != nil {
			return nil, fmt.Errorf("read kernel setting: %w", err)
		}
		if is := strings.TrimSpace(string(text)); is != strconv.Itoa(s.want) {
			all = append(all, fmt.Sprintf("%s is %s, not %d", strings.ReplaceAll(s.name, "/", "."), is, s.want))
		}
	}
	return all, nil
}

// Set sets those that are others. What cannot be set is in the error, the rest is.
func Set(root string) error {
	var errs []error
	for _, s := range settings() {
		path, want := filepath.Join(root, s.name), strconv.Itoa(s.want)
		text, err := os.ReadFile(path)
		if err == nil && strings.TrimSpace(string(text)) != want {
			err = os.WriteFile(path, []byte(want), 0o644)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("set kernel setting to %s: %w", want, err))
		}
	}
	return errors.Join(errs...)
}
