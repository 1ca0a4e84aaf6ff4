package driver

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// CheckName refuses a name that would lead to a path outside the directories of CSI volumes.
func CheckName(name string) error {
	if strings.Contains(name, "/") || name == "." || name == ".." {
		return fmt.Errorf("%q is no name of a CSI driver or volume", name)
	}
	return nil
}

// negotiate returns the highest CSI version that a driver supports. previous is the registered driver of the same name,
// or nil. It returns an error if the driver does not support CSI 1, or if previous supports at least the same version.
func negotiate(previous *Driver, versions []string) (*version.Version, error) {
	highest, err := version.HighestSupportedVersion(versions)
	if err != nil {
		return nil, fmt.Errorf("the CSI driver supports versions %q of CSI, and this agent version 1", versions)
	}
	if previous != nil && !previous.version.LessThan(highest) {
		return nil, fmt.Errorf(
			"another driver with the same name is already registered, at %s with version %s: a driver that replaces "+
				"it needs a higher version than %s", previous.Endpoint, previous.version, highest)
	}
	return highest, nil
}
