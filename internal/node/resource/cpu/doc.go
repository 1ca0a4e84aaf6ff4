// Package cpu decides which CPUs a container, or a pod as a whole, is given for
// itself: the kubelet's static CPU manager policy. All of it is pure. What is
// held is told in a Pool; package resource keeps it and nobody here writes it.
//
// On a machine whose cores, sockets and caches are alike (as nearly all are) the
// CPUs given are those that the kubelet would give of the same Pool. On others
// (efficiency cores, CPUs that are offline) the kubelet counts with the average
// size of a core; here each core counts as what it is, so that "whole cores" is
// true there too.
package cpu
