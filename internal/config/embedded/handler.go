package embedded

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// DefaultHandler is the runtime handler of pods without a RuntimeClass. It is the runc in the binary.
const DefaultHandler = "runc"

// Handler is a further runtime handler, which RuntimeClasses name. The field runtimes of the configuration has them by
// name. A kubelet ignores that field.
type Handler struct {
	// Binary is the absolute path of an OCI runtime with runc's command line, such as crun.
	Binary string `json:"binary"`
	// Options are for the OCI runtime.
	Options HandlerOptions `json:"options"`
	// PodAnnotations and ContainerAnnotations are the annotations of pods and containers that the OCI runtime gets, as
	// names or patterns with *. Default: none.
	PodAnnotations       []string `json:"podAnnotations"`
	ContainerAnnotations []string `json:"containerAnnotations"`
	// PrivilegedWithoutHostDevices gives privileged containers no device of the host.
	PrivilegedWithoutHostDevices bool `json:"privilegedWithoutHostDevices"`
}

// HandlerOptions are options of an OCI runtime, with containerd's meaning.
type HandlerOptions struct {
	// Root is the directory of the OCI runtime's state. Default: that of the runtime runc.
	Root string `json:"root"`
	// NoPivotRoot and NoNewKeyring are flags of the OCI runtime's create command.
	NoPivotRoot  bool `json:"noPivotRoot"`
	NoNewKeyring bool `json:"noNewKeyring"`
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
	if h.Binary == "" {
		return errors.New("binary is missing: set the absolute path of an OCI runtime")
	}
	if !filepath.IsAbs(h.Binary) {
		return fmt.Errorf("binary %q is not an absolute path", h.Binary)
	}
	if h.Options.Root != "" && !filepath.IsAbs(h.Options.Root) {
		return fmt.Errorf("options.root %q is not an absolute path", h.Options.Root)
	}
	return nil
}
