// Package kernel has the settings of the kernel that a kubelet wants of its machine
// (protectKernelDefaults), looks whether they are so and sets them. Nobody else
// writes them here.
package kernel
