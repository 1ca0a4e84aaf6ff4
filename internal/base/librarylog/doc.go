// Package librarylog sends the lines of libraries to the log of the program. The libraries write to loggers that the
// whole process shares: klog (client-go and the streaming of the CRI) and logrus (containerd, opencontainers/cgroups).
package librarylog
