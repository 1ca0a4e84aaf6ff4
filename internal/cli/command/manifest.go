package command

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/client"
)

// Manifest is the content of one manifest file.
type Manifest struct {
	Origin string
	Data   []byte
}

// ReadManifests reads files. "-" stands for standard input.
func ReadManifests(cmd *cobra.Command, files []string) ([]Manifest, error) {
	var all []Manifest
	for _, name := range files {
		data, err := ReadManifest(cmd.InOrStdin(), name)
		if err != nil {
			return nil, err
		}
		all = append(all, Manifest{name, data})
	}
	return all, nil
}

// ReadManifest reads one file, or stdin for "-".
func ReadManifest(stdin io.Reader, name string) ([]byte, error) {
	from := stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil,
				client.Next(fmt.Errorf("read manifest: %w", err),
					`give the path of a file with pods, or - for standard input`)
		}
		defer f.Close()
		if st, err := f.Stat(); err == nil && st.IsDir() {
			return nil, client.Next(fmt.Errorf("read manifest: %s is a directory", name),
				"name its files, or let an agent watch it: staticPodPath in the configuration")
		}
		from = f
	}
	data, err := io.ReadAll(io.LimitReader(from, api.MaxManifest+1))
	if err != nil {
		return nil, client.Next(fmt.Errorf("read manifest %s: %w", name, err),
			"give the path of a file that can be read, or - for standard input")
	}
	if len(data) > api.MaxManifest {
		return nil,
			client.Next(fmt.Errorf("read manifest %s: it is over %d MiB", name, api.MaxManifest>>20),
				"split it into several files")
	}
	return data, nil
}
