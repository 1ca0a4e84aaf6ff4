// Package kernel checks and sets the kernel settings that the kubelet wants (protectKernelDefaults). No other package
// writes them.
package kernel
