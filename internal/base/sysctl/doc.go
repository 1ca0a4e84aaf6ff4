// Package sysctl converts the two ways to write the name of a sysctl, see sysctl.d(5): with dots between its parts, as
// in net.ipv4.ip_forward, and with slashes, as in its path below /proc/sys. It also knows the namespaces of sysctls,
// and the ones that every pod may set. It keeps no state.
package sysctl
