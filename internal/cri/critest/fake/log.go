package fake

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// logFile is a container's log in CRI format. A nil logFile discards all output.
type logFile struct {
	path string
	file *os.File
}

func newLogFile(dir, name string) *logFile { return &logFile{path: filepath.Join(dir, name)} }

func (l *logFile) open() error {
	if l == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(l.path), 0o755); err != nil {
		return fmt.Errorf("open container log: %w", err)
	}
	file, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return fmt.Errorf("open container log: %w", err)
	}
	l.file = file
	return nil
}

func (l *logFile) close() {
	if l != nil && l.file != nil {
		_ = l.file.Close()
		l.file = nil
	}
}

// stream returns the writer of one stream. Each Write must contain whole lines.
func (l *logFile) stream(name runtimeapi.LogStreamType) io.Writer {
	return writerFunc(func(p []byte) (int, error) {
		if l == nil || l.file == nil {
			return len(p), nil
		}
		for line := range bytes.Lines(p) {
			_, err := fmt.Fprintf(l.file, "%s %s %s %s", time.Now().UTC().Format(time.RFC3339Nano), name,
				runtimeapi.LogTagFull, line)
			if err != nil {
				return 0, err
			}
		}
		return len(p), nil
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
