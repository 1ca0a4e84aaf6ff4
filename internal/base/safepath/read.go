package safepath

import (
	"fmt"
	"io"
)

// ReadFile reads a file that File opens, with the same depth. A file of more than limit bytes is an error, since a
// container may make a file as large as its disk.
func ReadFile(name string, depth int, limit int64) ([]byte, error) {
	f, err := File(name, depth)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(content)) > limit {
		return nil, fmt.Errorf("%s has more than %d bytes", name, limit)
	}
	return content, err
}
