package poddir

import (
	"fmt"
	"path/filepath"

	"k8s.io/apimachinery/pkg/types"
)

// MessagePath returns where TerminationLog makes the file of one instance of a container. The file may not exist.
func (d *Dirs) MessagePath(uid types.UID, container string, restartCount int) string {
	dir, err := d.Dir(uid)
	if err != nil {
		return "" // no directory can exist for such a UID
	}
	return filepath.Join(dir, "containers", container, messageFile(restartCount))
}

func messageFile(restartCount int) string { return fmt.Sprintf("%08x", uint32(restartCount)) }
