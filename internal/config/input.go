package config

import (
	"k8s.io/kubelet/config/v1beta1"

	"github.com/berth-run/berth/internal/config/fault"
)

// input holds what a Config is made from, and collects the errors found on the way. The functions that read a part of
// the Config take it as their argument.
type input struct {
	// kc has all defaults, files only the fields that the files set.
	kc, files *v1beta1.KubeletConfiguration
	fault.List
}
