package logfile

import (
	"encoding/json"
	"os"
)

// Annotation is the key of the annotation in a container's specification that has the path of its log.
const Annotation = "berth.run/log"

// LimitsFile is the name of the file of limits, in the directory above the bundles.
const LimitsFile = "logs.json"

// Limits apply to the log of one container instance.
type Limits struct {
	// MaxSize is the size in bytes that a file does not exceed, unless a single line does. 0 or less: no limit.
	MaxSize int64 `json:"maxSize"`
	// MaxFiles is the maximum number of files, the current one included. At least 2.
	MaxFiles int `json:"maxFiles"`
}

// Write replaces the file of limits. Logs read it when they are opened and rotated.
func (l Limits) Write(file string) error {
	content, err := json.Marshal(l)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+".tmp", content, 0o600); err != nil {
		return err
	}
	return os.Rename(file+".tmp", file)
}

// ReadLimits reads a file of limits. A file that is missing or damaged has none: lines are worth more than space.
func ReadLimits(file string) (l Limits) {
	content, err := os.ReadFile(file)
	if err != nil || json.Unmarshal(content, &l) != nil {
		return Limits{}
	}
	return l
}
