// Package podcerttest is a signer for tests: it answers the PodCertificateRequests of a cluster.
package podcerttest
