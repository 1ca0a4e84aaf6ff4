// Package config turns command-line flags and the KubeletConfiguration
// (kubelet.config.k8s.io/v1beta1) into one validated, immutable Config.
//
//	--config FILE -> --config-dir/*.conf (merged in order) -> defaults -> checks -> Config
//
// Files are read strictly: an unknown field is an error, with its file, line and
// path. A field that is known and that this version does not act on is a
// Warning, never silence: fields.go says of each what becomes of it.
//
// Load is the only maker of a Config and the only part that touches the machine
// (it reads files, the host's name, whether swap is on, which cgroups there are, and
// with protectKernelDefaults how the kernel is set). The
// Config is written once and read by everybody.
package config
