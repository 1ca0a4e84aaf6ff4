// Package cert keeps the two certificates of a node of a cluster.
//
// Client is the node's identity towards the API server: the pair in the kubeconfig, or one that the agent has
// requested (CertificateSigningRequest). It is stored where and how a kubelet stores it, so that an agent and a
// kubelet can continue from each other's files:
//
//	bootstrap kubeconfig --CSR--> CertDir/kubelet-client-current.pem --> kubeconfig
//	                       ^ again at 70-90 % of its life (rotateCertificates) |
//	                       +---------------------------------------------------+
//
// Serving is the certificate of the HTTPS server: the operator's files, a requested pair with the node's addresses
// (serverTLSBootstrap), or a self-signed pair.
//
// Client and Serving are the only writers of CertDir. They load files that somebody replaces, and keep the current
// pair while there is no better one: an expired certificate stops nothing here. They do not own connections. The
// owner of the connections closes them after Client.Replaced.
package cert
