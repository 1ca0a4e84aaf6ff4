// Package reset ends everything that agents have left on this machine under one root directory: pods, volumes, cgroups,
// the embedded runtime with its images and network, the rules in the packet filter, and the directory itself (package
// rootdir). It starts the container runtime for that, and makes only those parts of an agent that remove something. So
// a reset also works where an agent cannot start.
package reset
