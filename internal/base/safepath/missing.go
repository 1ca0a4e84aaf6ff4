package safepath

import (
	"errors"
	"io/fs"
)

// IgnoreMissing returns nil for the error of a file that does not exist, and every other error unchanged.
func IgnoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
