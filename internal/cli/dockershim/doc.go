// Package dockershim has the command "berth docker-shim", which serves the CRI on a Docker Engine to any kubelet.
package dockershim
