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

// Root is the directory that has the settings as files.
const Root = "/proc/sys"

// setting is a file below Root and its wanted content.
type setting struct {
	name string
	want int
}

// settings are the kubelet's. Memory is overcommitted, because requests and limits of pods bound its use. A machine
// without free memory kills processes instead of panicking. After a panic the machine reboots in 10 s. And there are
// enough keys for all containers of root: each needs one (keyrings(7)).
func settings() []setting {
	return []setting{
		{"vm/overcommit_memory", 1}, {"vm/panic_on_oom", 0},
		{"kernel/panic", 10}, {"kernel/panic_on_oops", 1},
		{"kernel/keys/root_maxkeys", 1_000_000}, {"kernel/keys/root_maxbytes", 25_000_000},
	}
}

// Names returns the files below Root that Set may write.
func Names() []string {
	var all []string
	for _, s := range settings() {
		all = append(all, s.name)
	}
	return all
}

// Wrong describes each setting that differs from the wanted value, with sysctl's names: "vm.overcommit_memory is 0, not
// 1".
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

// Set corrects the settings that differ. It tries all of them and returns the errors.
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
