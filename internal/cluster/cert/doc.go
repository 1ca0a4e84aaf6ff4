// Package cert keeps the two certificates of a node of a cluster.
//
// Client is who the node is to the API server: the pair of the kubeconfig, or one
// that was asked for (CertificateSigningRequest) and is kept where and as a kubelet
// keeps it, so that either goes on from the other's files:
//
//	bootstrap kubeconfig --CSR--> CertDir/kubelet-client-current.pem --> kubeconfig
//	                       ^ again at 70-90 % of its life (rotateCertificates) |
//	                       +---------------------------------------------------+
//
// Serving is what the HTTPS server shows: files of the operator, a pair that was
// asked for with the node's addresses in it (serverTLSBootstrap), or a self-signed
// one.
//
// Both are the only writers of CertDir, take up files that somebody replaces, and
// go on with what they have when there is nothing better: an expired certificate
// ends nothing here. They do not own connections: Changed tells who does.
package cert
