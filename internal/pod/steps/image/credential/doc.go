// Package credential finds what an image can be pulled with.
//
// A provider that asks for it is given the token of the pod's service account
// (KEP-4412), and its answer is that account's.
//
// It owns the reading of docker configurations, from pull secrets and from files
// of the node, the exec protocol of credential provider plugins
// (credentialprovider.kubelet.k8s.io/v1) and the cache of their answers. Package
// image asks it once for each pull. It keeps nothing on disk.
//
// Which entry is for which image follows the kubelet (pkg/credentialprovider):
// globs match one part of a host name, ports are equal, paths are prefixes, and
// the entry that is longest in the order of text comes first.
package credential
