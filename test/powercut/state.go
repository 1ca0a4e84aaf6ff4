package powercut

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// notState are directories of a root whose files are not the agent's state.
var notState = []string{"runtime", "run", "pods", "volumes", "plugins", "logs", "manifests"}

// mayBeDamaged are directories of a root whose files the agent does not sync, or syncs later. A cut may damage them,
// but the agent must name them (checkpoint.Dir.SaveUnsynced, checkpoint.ReplaceUnsynced).
var mayBeDamaged = []string{"status", "probes", "allocations", "devices", "timelines", "static"}

// Damaged returns the state files below a root that cannot be read. synced is true for a file that no cut may damage.
// The agent may run: files that it removes meanwhile are not damaged.
func Damaged(root string) (files map[string]bool, err error) {
	files = map[string]bool{}
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path != root {
			return nil
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		top, _, _ := strings.Cut(rel, "/")
		if entry.IsDir() && slices.Contains(notState, rel) {
			return fs.SkipDir
		}
		if !entry.Type().IsRegular() || filepath.Ext(path) != ".json" {
			return nil
		}
		content, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if !intact(content) {
			files[rel] = !slices.Contains(mayBeDamaged, top)
		}
		return nil
	})
	return files, err
}

// intact reports whether content is JSON, with the right checksum if it has the form of a state file.
func intact(content []byte) bool {
	var e struct {
		Version  int
		Checksum json.RawMessage
		Data     json.RawMessage
	}
	if json.Unmarshal(content, &e) != nil {
		return false
	}
	var sum string
	if json.Unmarshal(e.Checksum, &sum) != nil || !strings.HasPrefix(sum, "sha256:") {
		return true // the file of a kubelet
	}
	h := sha256.New()
	fmt.Fprintf(h, "%d\n", e.Version)
	h.Write(e.Data)
	return sum == fmt.Sprintf("sha256:%x", h.Sum(nil))
}
