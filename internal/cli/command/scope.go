package command

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/api/client"
)

// Scope is the namespace flag of a command.
type Scope struct {
	Namespace string
	All       bool
}

// Add adds the flag --namespace.
func (s *Scope) Add(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&s.Namespace, "namespace", "n", "default", "`namespace`")
}

// AddAll adds the flags --namespace and --all-namespaces.
func (s *Scope) AddAll(cmd *cobra.Command) {
	s.Add(cmd)
	cmd.Flags().BoolVarP(&s.All, "all-namespaces", "A", false, "all namespaces")
	cmd.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
}

// Selected returns the namespace to list, or "" for all.
func (s *Scope) Selected() string {
	if s.All {
		return ""
	}
	return s.Namespace
}

// Explicit returns the namespace if the user has set the flag, or "".
func (s *Scope) Explicit(cmd *cobra.Command) string {
	if cmd.Flags().Changed("namespace") {
		return s.Namespace
	}
	return ""
}

// Pod returns the pod that an argument names: NAME or pod/NAME.
func (s *Scope) Pod(arg string) (types.NamespacedName, error) {
	kind, name, typed := strings.Cut(arg, "/")
	if !typed {
		name = arg
	} else if !IsPods(kind) {
		return types.NamespacedName{}, client.Next(fmt.Errorf("%q is not a pod", arg), "write NAME or pod/NAME")
	}
	if name == "" {
		return types.NamespacedName{}, client.Next(fmt.Errorf("%q names no pod", arg), "write NAME or pod/NAME")
	}
	return types.NamespacedName{Namespace: s.Namespace, Name: name}, nil
}

// IsPods reports whether a word names the kind pod.
func IsPods(kind string) bool { return kind == "pod" || kind == "pods" || kind == "po" }
