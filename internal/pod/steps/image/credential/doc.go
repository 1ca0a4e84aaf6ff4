// Package credential finds the credentials that an image can be pulled with.
//
// It owns the reading of docker configurations, from pull Secrets and from files of the node, the exec protocol of
// credential provider plugins (credentialprovider.kubelet.k8s.io/v1) and the cache of their answers. Package image
// calls it once for each pull. It keeps nothing on disk.
//
// A provider that requires it receives a token of the pod's service account (KEP-4412). Its answer then belongs to that
// service account.
//
// The choice of an entry for an image follows the kubelet (pkg/credentialprovider): a glob matches one part of a host
// name, ports must be equal, paths are prefixes, and the entry that is last in lexical order comes first.
package credential
