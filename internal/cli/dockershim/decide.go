package dockershim

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
)

// stateDir returns the directory of the shim of an Engine.
func stateDir(engine string) string {
	sum := sha256.Sum256([]byte(engine))
	return filepath.Join("/run/berth-docker-shim", hex.EncodeToString(sum[:4]))
}
