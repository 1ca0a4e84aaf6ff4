// Package stock runs pods on the machine's containerd, by the same CRI calls as the floor of package side. Each pod has
// a pause container and a shim there, and a network by CNI plugins. It owns the containerd and its directories.
package stock
