package oci

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
)

// Error adds the last error that the OCI runtime has written into its log. It returns nil for nil.
func Error(logFile, doing string, err error) error {
	if err == nil {
		return nil
	}
	message := ""
	if content, failed := os.ReadFile(logFile); failed == nil {
		for line := range strings.Lines(string(content)) {
			var entry struct{ Level, Msg string }
			if json.Unmarshal([]byte(line), &entry) == nil && entry.Level == "error" {
				message = strings.TrimSpace(entry.Msg)
			}
		}
	}
	if message == "" {
		return fmt.Errorf("OCI runtime %s failed: %w", doing, err)
	}
	return fmt.Errorf("OCI runtime %s failed: %s", doing, message)
}

// IsGone reports whether an OCI runtime has failed because it knows no such container.
func IsGone(err error) bool { return strings.Contains(err.Error(), "does not exist") }

// ForgetErrors empties the log of an OCI runtime, so that Error does not take an error of an earlier call for one of
// the next call.
func ForgetErrors(logFile string) error {
	if err := os.Truncate(logFile, 0); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
