package embedded

import (
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// DefaultHandler is the runtime handler of pods without a RuntimeClass. It is the runc in the binary.
const DefaultHandler = "runc"

// Handler is a further runtime handler, which RuntimeClasses name. The field runtimes of the configuration has them by
// name. A kubelet ignores that field.
type Handler struct {
	// Shim is the name of a containerd shim (runtime v2), such as io.containerd.kata.v2. Default: the shim of the
	// runtime runc, which calls Binary.
	Shim string `json:"shim"`
	// Binary is the absolute path of an OCI runtime with runc's command line, such as crun. With a shim it is the path
	// of the shim's program. Default with a shim: the program in PATH that containerd's rule names, such as
	// containerd-shim-kata-v2.
	Binary string `json:"binary"`
	// Options are for the OCI runtime or the shim.
	Options HandlerOptions `json:"options"`
	// PodAnnotations and ContainerAnnotations are the annotations of pods and containers that the runtime gets, as
	// names or patterns with *. Default: none.
	PodAnnotations       []string `json:"podAnnotations"`
	ContainerAnnotations []string `json:"containerAnnotations"`
	// PrivilegedWithoutHostDevices gives privileged containers no device of the host.
	PrivilegedWithoutHostDevices bool `json:"privilegedWithoutHostDevices"`
}

// HandlerOptions are options of an OCI runtime or of a shim, with containerd's meaning.
type HandlerOptions struct {
	// Root is the directory of the OCI runtime's state. Default: the directory of the handler runc.
	Root string `json:"root,omitempty"`
	// NoPivotRoot and NoNewKeyring are flags of the OCI runtime's create command.
	NoPivotRoot  bool `json:"noPivotRoot,omitempty"`
	NoNewKeyring bool `json:"noNewKeyring,omitempty"`
	// ConfigPath is the absolute path of the shim's configuration file. Default: the shim's own.
	ConfigPath string `json:"configPath,omitempty"`
	// TypeURL is the type of the shim's options, such as io.containerd.runsc.v1.options. Default: none.
	TypeURL string `json:"typeURL,omitempty"`
}

// Check returns what is wrong with a handler, or nil. A program that is missing may be
// installed later.
func (h Handler) Check(name string) error {
	if name == DefaultHandler {
		return fmt.Errorf("%q is the handler of the binary's own runc: choose another name", name)
	}
	if messages := validation.IsDNS1123Label(name); len(messages) > 0 {
		return fmt.Errorf("%q cannot be the handler of a RuntimeClass: %s", name, strings.Join(messages, ", "))
	}
	if err := h.checkShim(); err != nil {
		return err
	}
	for _, path := range []struct{ field, value string }{
		{"binary", h.Binary}, {"options.root", h.Options.Root}, {"options.configPath", h.Options.ConfigPath},
	} {
		if path.value != "" && !filepath.IsAbs(path.value) {
			return fmt.Errorf("%s %q is not an absolute path", path.field, path.value)
		}
	}
	return nil
}

// shimName is containerd's form of the name of a shim: a prefix, a name and a version.
const shimName = `^([A-Za-z0-9_-]+\.)+[A-Za-z0-9_-]+\.v[0-9]+$`

// checkShim returns what is wrong with the choice of the shim and the options that belong to it, or nil.
func (h Handler) checkShim() error {
	const builtIn = "io.containerd.runc." // of version 1 and 2
	named, err := regexp.MatchString(shimName, h.Shim)
	if err != nil {
		return err
	}
	o := h.Options
	switch {
	case h.Shim == "" && h.Binary == "":
		return errors.New("binary is missing: set the absolute path of an OCI runtime, or the name of a shim in shim")
	case h.Shim == "" && o.ConfigPath+o.TypeURL != "":
		return errors.New("options.configPath and options.typeURL are for shims: set shim, or remove them")
	case h.Shim == "":
		return nil
	case strings.HasPrefix(h.Shim, builtIn):
		return fmt.Errorf("shim %q is built in: remove it, and set binary to an OCI runtime", h.Shim)
	case !named:
		return fmt.Errorf("shim %q is not the name of a containerd shim, such as io.containerd.kata.v2; set the path "+
			"of its program in binary", h.Shim)
	case o.Root != "" || o.NoPivotRoot || o.NoNewKeyring:
		return errors.New("options.root, noPivotRoot and noNewKeyring are for OCI runtimes: remove shim, or set " +
			"options.configPath to a file of the shim that has them")
	}
	return nil
}
