package poddir

import (
	"fmt"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"
)

// MessagePath is where TerminationLog made the file of one instance of a
// container. It may be gone.
func (d *Dirs) MessagePath(uid types.UID, container string, restartCount int) string {
	dir, err := d.Dir(uid)
	if err != nil {
		return "" // not a UID that anything was made for
	}
	return filepath.Join(dir, "containers", container, messageFile(restartCount))
}

func messageFile(restartCount int) string { return fmt.Sprintf("%08x", uint32(restartCount)) }
