package runtime

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berth-run/berth/internal/runtime/assets"
)

const (
	// shimName is containerd's name for the shim of runtimes that use runc.
	shimName   = "containerd-shim-runc-v2"
	holderName = assets.HolderName
	// keyLength is the number of hexadecimal digits of a hash in a file name.
	keyLength = 12
)

// cniPlugins are the embedded CNI plugins. A CNI configuration of the machine may use them where none are installed,
// and pods of earlier versions need them when they end. The built-in network does not use them.
var cniPlugins = [...]string{"bridge", "host-local", "portmap"}

// program is one embedded executable.
type program struct {
	name string
	sum  string // SHA-256 of the executable, in hexadecimal
}

// file is the name of the installed file. It contains a hash of the content.
func (p program) file() string { return p.name + "-" + p.sum[:keyLength] }

// embeddedPrograms returns the programs of this build by name.
func embeddedPrograms() (map[string]program, error) {
	sums, err := assets.Sums()
	if err != nil {
		return nil, err
	}
	return parseSums(string(sums))
}

// parseSums reads the output of sha256sum.
func parseSums(text string) (map[string]program, error) {
	programs := map[string]program{}
	for line := range strings.Lines(text) {
		sum, name, ok := strings.Cut(strings.TrimSpace(line), "  ")
		if !ok || len(sum) != 2*sha256.Size {
			return nil, fmt.Errorf("read embedded checksums: malformed line %q", line)
		}
		programs[name] = program{name: name, sum: sum}
	}
	return programs, nil
}

// installPrograms installs runc, the shim and the CNI plugins in the bin directory. Shims and containers of an earlier
// run may still use older files there. A file's name contains a hash of its content, and the file never changes. A link
// without the hash names the current file and is replaced atomically.
func installPrograms(l layout, programs map[string]program) error {
	if err := os.MkdirAll(l.cniBin(), 0o755); err != nil {
		return err
	}
	links := map[string]string{} // path of each link, to its target
	for _, name := range append([]string{"runc", shimName, holderName}, cniPlugins[:]...) {
		p, ok := programs[name]
		if !ok {
			return fmt.Errorf("install %s: %w", name, assets.ErrMissing)
		}
		if err := installProgram(l.bin(), p); err != nil {
			return fmt.Errorf("install %s: %w", name, err)
		}
		links[l.program(name)] = p.file()
		if slices.Contains(cniPlugins[:], name) {
			links[l.program(name)] = filepath.Join("..", p.file())
		}
	}
	keep := map[string]bool{}
	for link, target := range links {
		if err := replaceLink(target, link); err != nil {
			return fmt.Errorf("install %s: %w", filepath.Base(link), err)
		}
		keep[filepath.Base(target)] = true
	}
	return removeStale(l.bin(), keep)
}

// installProgram writes an embedded program unless its file exists.
func installProgram(dir string, p program) error {
	target := filepath.Join(dir, p.file())
	if _, err := os.Stat(target); err == nil {
		return nil
	}
	content, err := assets.Open(p.name)
	if err != nil {
		return err
	}
	defer content.Close()
	return writeExecutable(target, content, p.sum)
}

// writeExecutable writes a file atomically. Unless sum is empty, it must be the SHA-256 of the content.
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
	if got := hex.EncodeToString(hash.Sum(nil)); sum != "" && got != sum {
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
			used = executedFiles()
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
func executedFiles() map[string]bool {
	links, _ := filepath.Glob("/proc/[0-9]*/exe")
	used := map[string]bool{}
	for _, link := range links {
		if path, err := os.Readlink(link); err == nil {
			used[path] = true
		}
	}
	return used
}
