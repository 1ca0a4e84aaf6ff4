package program

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/berth-run/berth/internal/base/process"
	"github.com/berth-run/berth/internal/runtime/assets"
)

const (
	// Runc is the default OCI runtime.
	Runc = "runc"
	// Shim is containerd's name for the shim of runtimes that use runc.
	Shim = "containerd-shim-runc-v2"
	// Holder keeps the namespaces of a pod open.
	Holder = assets.HolderName
)

// keyLength is the number of hexadecimal digits of a hash in a file name.
const keyLength = 12

// plugins are the embedded CNI plugins. A CNI configuration of the machine may use them where none are installed, and
// pods of earlier versions need them when they end. The built-in network does not use them.
var plugins = [...]string{"bridge", "host-local", "portmap"}

// Programs are the programs of a runtime.
type Programs struct {
	// Dir is the directory of the programs. Plugins is the directory of the CNI plugins in it.
	Dir, Plugins string
}

// In returns the programs of the runtime whose root directory is root.
func In(root string) Programs {
	dir := filepath.Join(root, "bin")
	return Programs{Dir: dir, Plugins: filepath.Join(dir, "cni")}
}

// Path is the path of the link to an installed program, apart from the CNI plugins.
func (p Programs) Path(name string) string { return filepath.Join(p.Dir, name) }

// Install installs the programs that each start needs, and removes those of earlier versions that no process runs.
// The error is assets.ErrMissing if the binary was built without the programs.
func (p Programs) Install() error {
	sums, err := Sums()
	if err != nil {
		return err
	}
	if err := p.install(sums, p.Dir, Runc, Shim, Holder); err != nil {
		return err
	}
	keep := map[string]bool{}
	for name, sum := range sums {
		keep[file(name, sum)] = true
	}
	return removeStale(p.Dir, keep)
}

// InstallPlugins installs the CNI plugins, unless they are. The error is as for Install.
func (p Programs) InstallPlugins() error {
	sums, err := Sums()
	if err != nil {
		return err
	}
	return p.install(sums, p.Plugins, plugins[:]...)
}

// install installs programs in the directory Dir, with links to them in the directory links. It writes them at the same
// time, since the first agent of a root directory waits for it.
func (p Programs) install(sums map[string]string, links string, names ...string) error {
	if err := os.MkdirAll(links, 0o755); err != nil {
		return err
	}
	var group errgroup.Group
	for _, name := range names {
		group.Go(func() error {
			if err := p.installOne(sums[name], links, name); err != nil {
				return fmt.Errorf("install %s: %w", name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

func (p Programs) installOne(sum, links, name string) error {
	if sum == "" {
		return assets.ErrMissing
	}
	target := filepath.Join(p.Dir, file(name, sum))
	short, err := filepath.Rel(links, target)
	if err != nil {
		return err
	}
	if err := write(target, name, sum); err != nil {
		return err
	}
	return replaceLink(short, filepath.Join(links, name))
}

// file is the name of a program's installed file.
func file(name, sum string) string { return name + "-" + sum[:keyLength] }

// Sums returns the SHA-256 of each embedded program, in hexadecimal, by the program's name. The error is
// assets.ErrMissing if there are none.
func Sums() (map[string]string, error) {
	text, err := assets.Sums()
	if err != nil {
		return nil, err
	}
	return parseSums(string(text))
}

// parseSums reads the output of sha256sum.
func parseSums(text string) (map[string]string, error) {
	sums := map[string]string{}
	for line := range strings.Lines(text) {
		sum, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
		if !ok || len(sum) != 2*sha256.Size {
			return nil, fmt.Errorf("read embedded checksums: malformed line %q", line)
		}
		sums[name] = sum
	}
	return sums, nil
}

// write writes an embedded program unless its file exists.
func write(target, name, sum string) error {
	if _, err := os.Stat(target); err == nil {
		return nil
	}
	content, err := assets.Open(name)
	if err != nil {
		return err
	}
	defer content.Close()
	return writeExecutable(target, content, sum)
}

// writeExecutable writes a file atomically. sum must be the SHA-256 of the content.
func writeExecutable(target string, content io.Reader, sum string) error {
	tmp, err := os.CreateTemp(filepath.Dir(target), filepath.Base(target)+".tmp")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // after a success the file has another name
	defer tmp.Close()
	hash := sha256.New()
	if _, err := io.Copy(io.MultiWriter(tmp, hash), content); err != nil {
		return err
	}
	if got := hex.EncodeToString(hash.Sum(nil)); got != sum {
		return fmt.Errorf("checksum is %s, not %s", got, sum)
	}
	if err := errors.Join(tmp.Chmod(0o755), tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), target)
}

// replaceLink atomically makes link a symbolic link to target.
func replaceLink(target, link string) error {
	if have, err := os.Readlink(link); err == nil && have == target {
		return nil
	}
	tmp := link + ".tmp"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(target, tmp); err != nil {
		return err
	}
	return os.Rename(tmp, link)
}

// removeStale removes the files in dir that are not in keep and that no process runs from, such as the shim of an
// earlier version.
func removeStale(dir string, keep map[string]bool) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var used map[string]bool
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		if !entry.Type().IsRegular() || keep[entry.Name()] {
			continue
		}
		if used == nil {
			if used, err = executedFiles(); err != nil {
				return err
			}
		}
		if used[path] {
			continue
		}
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

// executedFiles returns the set of files that processes run from.
func executedFiles() (map[string]bool, error) {
	all, err := process.IDs()
	if err != nil {
		return nil, err
	}
	used := map[string]bool{}
	for _, id := range all {
		if path, err := os.Readlink(process.Path(id, "exe")); err == nil {
			used[path] = true
		}
	}
	return used, nil
}
