package pause

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"runtime"
)

const (
	// repository is the name of Berth's own image. There is no registry of this name.
	repository = "localhost/berth-pause"
	// digits is the number of digits of the program's hash in the tag.
	digits = 12
)

// Name returns the name of the image with a program.
func Name(program []byte) string {
	return repository + ":" + sum(program)[:digits]
}

func sum(content []byte) string {
	hash := sha256.Sum256(content)
	return hex.EncodeToString(hash[:])
}

// archive makes the archive of an image with the holder program, in the format of "docker load". The same program gives
// the same bytes, and so the same image ID. The last argument of the entrypoint makes a holder wait for ever.
func archive(program []byte) ([]byte, error) {
	layer, err := pack(file{"holder", program, 0o755})
	if err != nil {
		return nil, err
	}
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{"/holder", "pause", "p"}, "User": "65535:65535"},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + sum(layer)}},
	})
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal([]map[string]any{
		{"Config": "config.json", "RepoTags": []string{Name(program)}, "Layers": []string{"layer.tar"}},
	})
	if err != nil {
		return nil, err
	}
	return pack(file{"layer.tar", layer, 0o644}, file{"config.json", config, 0o644},
		file{"manifest.json", manifest, 0o644})
}

type file struct {
	name    string
	content []byte
	mode    int64
}

func pack(files ...file) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode,
			Size: int64(len(f.content))}); err != nil {
			return nil, fmt.Errorf("write archive of the pause image: %w", err)
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, fmt.Errorf("write archive of the pause image: %w", err)
		}
	}
	err := w.Close()
	return out.Bytes(), err
}
