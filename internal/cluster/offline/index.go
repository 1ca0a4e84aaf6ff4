package offline

import (
	"crypto/cipher"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/checkpoint"
)

// index says which saved pods are current, and when the API server last answered. It is encrypted with the key of the
// pods. Without the key, a person who can write the files can neither bring back a pod that was deleted or replaced,
// nor change the time. An old copy of the whole directory is accepted until it reaches the maximum age.
type index struct {
	// Counter is the highest counter of a saved pod. It grows with each save.
	Counter uint64 `json:"counter"`
	// Confirmed is when the API server last answered.
	Confirmed time.Time `json:"confirmed"`
	// Pods has the counter of each saved pod.
	Pods map[types.UID]uint64 `json:"pods,omitempty"`
}

// accepts reports whether a pod that was saved with a counter is current. The index is written after the pods, so a pod
// with a higher counter is current too: its agent was killed in between.
func (i index) accepts(uid types.UID, counter uint64) bool {
	if least, ok := i.Pods[uid]; ok {
		return counter >= least
	}
	return counter > i.Counter
}

// sealedIndex is the index on disk, version 1. Sealed is the index as JSON, encrypted with AES-256-GCM.
type sealedIndex struct {
	Sealed []byte `json:"sealed"`
}

// indexData and podData are the additional data of the encryption, so that no file can replace another one.
const indexData = "index"

func podData(uid types.UID, counter uint64) []byte {
	return []byte("pod " + strconv.FormatUint(counter, 10) + " " + string(uid))
}

// loadIndex reads the index. exists is false if it was never saved. With an error the index is empty and must not be
// used: it would accept every copy of a pod.
func loadIndex(path string, key cipher.AEAD) (i index, exists bool, err error) {
	i.Pods = map[types.UID]uint64{}
	s, err := checkpoint.Load[sealedIndex](path, format())
	if errors.Is(err, fs.ErrNotExist) {
		return i, false, nil
	}
	if err != nil {
		return i, true, err
	}
	plain, err := key.Open(nil, nil, s.Sealed, []byte(indexData))
	if err != nil {
		return i, true, fmt.Errorf("read the index of the saved pods: %w", errOtherKey)
	}
	if err := json.Unmarshal(plain, &i); err != nil {
		return index{Pods: map[types.UID]uint64{}}, true, fmt.Errorf("read the index of the saved pods: %w", err)
	}
	return i, true, nil
}

func saveIndex(path string, key cipher.AEAD, i index) error {
	plain, err := json.Marshal(i)
	if err != nil {
		return err
	}
	return checkpoint.Save(path, format(), sealedIndex{key.Seal(nil, nil, plain, []byte(indexData))})
}
