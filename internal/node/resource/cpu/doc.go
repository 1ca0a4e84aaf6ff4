// Package cpu decides which CPUs a container, or a pod as a whole, gets exclusively: the kubelet's static CPU manager
// policy. It is pure. A Pool knows the held CPUs; package resource keeps the records.
//
// On a machine with identical cores, sockets and caches (nearly all machines), it chooses the same CPUs as the kubelet
// does for the same Pool. On other machines (efficiency cores, offline CPUs) the kubelet uses the average size of a
// core. This package uses the real size of each core, so that "whole cores" is true there too.
package cpu
