// Package dockertest runs the machine's dockerd for tests and measurements.
//
// Each Daemon has its own containerd, data root, exec root, socket and pid file below one directory, and its own parent
// cgroup. It changes nothing else on the machine: it makes no bridge and no packet filter rules, and reads no
// configuration from /etc. Close removes the containers and everything that they and the daemon have left.
//
// It is the machine's own dockerd (Debian: docker.io), found in PATH. hack/setup.sh installs it, and its service is
// never started. The environment variable BERTH_TEST_DOCKERD names another dockerd, such as the current one that make
// engine builds.
package dockertest
