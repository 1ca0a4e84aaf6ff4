// Package facts reads the signals of eviction from the machine, with the same files and formulas as the kubelet.
package facts
