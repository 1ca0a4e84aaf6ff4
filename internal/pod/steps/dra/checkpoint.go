package dra

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/berth-run/berth/internal/base/checkpoint"
)

// stateFile is the name of the kubelet's checkpoint file.
const stateFile = "dra_manager_state"

// Kind and version that the kubelet writes since 1.32.
const (
	checkpointKind    = "DRACheckpoint"
	checkpointVersion = "checkpoint.dra.kubelet.k8s.io/v1"
)

// sealed is the content of the file. The checksum covers the bytes of Data.
type sealed struct {
	Data     string
	Checksum uint32
}

// content is the decoded Data. The two names in lower case are the kubelet's.
type content struct {
	Kind               string `json:"kind"`
	APIVersion         string `json:"apiVersion"`
	ClaimInfoStateList []*record
}

func seal(records map[string]*record) ([]byte, error) {
	c := content{Kind: checkpointKind, APIVersion: checkpointVersion}
	for _, key := range slices.Sorted(maps.Keys(records)) {
		c.ClaimInfoStateList = append(c.ClaimInfoStateList, records[key])
	}
	data, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	return json.Marshal(sealed{Data: string(data), Checksum: crc32.ChecksumIEEE(data)})
}

func open(raw []byte) (map[string]*record, error) {
	var s sealed
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, fmt.Errorf("is not a checkpoint: %w", err)
	}
	if sum := crc32.ChecksumIEEE([]byte(s.Data)); sum != s.Checksum {
		return nil, fmt.Errorf("has checksum %d, but its data has %d", s.Checksum, sum)
	}
	var c content
	if err := json.Unmarshal([]byte(s.Data), &c); err != nil {
		return nil, fmt.Errorf("has data of another shape: %w", err)
	}
	if c.APIVersion != checkpointVersion || c.Kind != checkpointKind {
		return nil,
			fmt.Errorf("has %s of %s, this program reads %s of %s", c.Kind, c.APIVersion, checkpointKind,
				checkpointVersion)
	}
	records := map[string]*record{}
	for i, r := range c.ClaimInfoStateList {
		if r == nil || r.ClaimUID == "" || r.ClaimName == "" || r.Namespace == "" {
			return nil, fmt.Errorf("does not name claim %d", i)
		}
		records[r.key()] = r.clone()
	}
	return records, nil
}

// readRecords reads the checkpoint. It moves a checkpoint that it cannot use aside, so that the next save does not
// overwrite it.
func readRecords(path string) (map[string]*record, error) {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]*record{}, nil
	}
	if err != nil {
		return map[string]*record{}, fmt.Errorf("read prepared claims: %w", err)
	}
	records, err := open(raw)
	if err == nil {
		return records, nil
	}
	aside := fmt.Sprintf("%s.corrupt-%s", path, time.Now().UTC().Format("20060102T150405.000000000Z"))
	return map[string]*record{}, errors.Join(
		fmt.Errorf("state file %s %w; it was moved to %s, and the claims in it will not be unprepared", path,
			err, filepath.Base(aside)), os.Rename(path, aside))
}

// writeRecords replaces the checkpoint atomically.
func writeRecords(path string, records map[string]*record) error {
	raw, err := seal(records)
	if err != nil {
		return fmt.Errorf("encode prepared claims: %w", err)
	}
	if err := checkpoint.Replace(path, raw); err != nil {
		return fmt.Errorf("save prepared claims: %w", err)
	}
	return nil
}
