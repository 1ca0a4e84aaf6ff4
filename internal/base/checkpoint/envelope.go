package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Format is the version of a file's data.
type Format struct {
	// Version is the version that Save writes, at least 1. It grows when the data changes shape.
	Version int
	// Migrate converts data of an older version to Version. nil: there is no older version.
	Migrate func(from int, data json.RawMessage) (json.RawMessage, error)
}

type envelope struct {
	Version  int             `json:"version"`
	Checksum string          `json:"checksum"`
	Data     json.RawMessage `json:"data"`
}

// newerError is the error for a valid file of a version that this program does not know.
type newerError struct{ found, known int }

func (e *newerError) Error() string {
	return fmt.Sprintf("has format version %d, written by a newer program; this one reads up to version %d", e.found,
		e.known)
}

// seal is the content of a file with data, which is compact JSON.
func seal(version int, data []byte) []byte {
	return fmt.Appendf(nil, `{"version":%d,"checksum":%q,"data":%s}`+"\n", version, checksum(version, data), data)
}

// open checks the content of a file and returns its data in the form of f.Version.
func (f Format) open(content []byte) (json.RawMessage, error) {
	var e envelope
	d := json.NewDecoder(bytes.NewReader(content))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, fmt.Errorf("is cut off after %d bytes", len(content))
		}
		return nil, fmt.Errorf("is not an envelope of version, checksum and data: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("has content after its end at byte %d", d.InputOffset())
	}
	if want := checksum(e.Version, e.Data); e.Checksum != want {
		return nil, fmt.Errorf("has checksum %q, but its data has %q", e.Checksum, want)
	}
	if len(e.Data) == 0 || string(e.Data) == "null" {
		return nil, errors.New("has no data")
	}
	switch {
	case e.Version > f.Version:
		return nil, &newerError{found: e.Version, known: f.Version}
	case e.Version == f.Version:
		return e.Data, nil
	case f.Migrate == nil:
		return nil,
			fmt.Errorf("has format version %d, which cannot be converted to version %d", e.Version, f.Version)
	}
	data, err := f.Migrate(e.Version, e.Data)
	if err != nil {
		return nil, fmt.Errorf("cannot be converted from format version %d to %d: %w", e.Version, f.Version, err)
	}
	return data, nil
}

// checksum covers the version too: with a wrong version, the data would be misread.
func checksum(version int, data []byte) string {
	h := sha256.New()
	fmt.Fprintf(h, "%d\n", version)
	h.Write(data)
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}
