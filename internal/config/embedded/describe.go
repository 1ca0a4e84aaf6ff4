package embedded

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Description describes the program of a runtime handler for people.
type Description struct {
	Name string `json:"name"`
	// Program is an OCI runtime, or a shim.
	Program string `json:"program"`
	// CgroupDriver is cgroupfs or systemd. It is empty for a shim, which has a configuration of its own.
	CgroupDriver string `json:"cgroupDriver,omitempty"`
	// Options are the options that the configuration sets, as NAME=VALUE.
	Options []string `json:"options,omitempty"`
}

// Describe returns the descriptions of all handlers, by name. driver is the cgroup driver of the agent.
func (s Settings) Describe(driver string) []Description {
	all := []Description{{Name: DefaultHandler, Program: "runc (built in)", CgroupDriver: driver}}
	for _, name := range slices.Sorted(maps.Keys(s.Handlers)) {
		h := s.Handlers[name]
		d := Description{Name: name, Program: h.Binary, CgroupDriver: driver, Options: h.Options.list()}
		if h.Shim != "" {
			d.Program, d.CgroupDriver = h.Shim, ""
			if h.Binary != "" {
				d.Program += " (" + h.Binary + ")"
			}
		}
		if h.PrivilegedWithoutHostDevices {
			d.Options = append(d.Options, "privilegedWithoutHostDevices=true")
		}
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b Description) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Annotation returns the descriptions as JSON, or nothing if the configuration adds no handler.
func (s Settings) Annotation(driver string) (string, error) {
	if len(s.Handlers) == 0 {
		return "", nil
	}
	text, err := json.Marshal(s.Describe(driver))
	return string(text), err
}

// list returns the options that are set, as NAME=VALUE.
func (o HandlerOptions) list() (set []string) {
	for _, option := range []struct{ name, value string }{
		{"root", o.Root}, {"noPivotRoot", flag(o.NoPivotRoot)}, {"noNewKeyring", flag(o.NoNewKeyring)},
		{"configPath", o.ConfigPath}, {"typeURL", o.TypeURL},
	} {
		if option.value != "" {
			set = append(set, option.name+"="+option.value)
		}
	}
	return set
}

// flag is the value of a flag, empty if it is not set.
func flag(on bool) string {
	if on {
		return strconv.FormatBool(on)
	}
	return ""
}
