// Package kubeletfile reads KubeletConfiguration files (kubelet.config.k8s.io/v1beta1).
//
//	--config FILE -> --config-dir/*.conf -> Read, Merge -> Complete (defaults) -> package config
//
// Files are read as the kubelet reads them: an unknown field is ignored, with a Warning of its file, line and path. A
// known field that has no effect in this version gives a Warning too. The lists in fields.go name every field of the
// API exactly once.
//
// The package reads files and nothing else of the machine. Package config checks the values.
package kubeletfile
