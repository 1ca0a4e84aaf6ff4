// Package config turns command-line flags and the KubeletConfiguration (kubelet.config.k8s.io/v1beta1) into one
// validated, immutable Config.
//
//	--config FILE -> --config-dir/*.conf (merged in order) -> defaults -> checks -> Config
//
// Package kubeletfile reads and merges the files. It also lists the fields that have no effect here, and gives a
// Warning for each of them that is set.
//
// Load is the only function that makes a Config and the only one that reads the machine: the files, the host's name,
// whether swap is on, the cgroup version, and the kernel parameters if protectKernelDefaults is set. A Config is
// written once and then only read.
package config
