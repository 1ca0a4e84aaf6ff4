// Package plugin makes containerd's CRI plugin call Berth for the network of pods. It decides for each call whether the
// call concerns the built-in network or containerd's own implementation of CNI, which has the machine's configuration.
// It keeps no state.
package plugin
