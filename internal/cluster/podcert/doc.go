// Package podcert gets the certificates of pods (KEP-4317) for the podCertificate sources of projected volumes.
//
// It owns the private keys and the certificates of this node's pods, in memory. Each source of a volume has its own
// key, which never leaves the node except into that volume. The agent creates a PodCertificateRequest with it, and the
// signer answers in the status of the request. Package objects follows the requests of this node.
//
//	none --create--> requested --Issued--> issued --begin of refresh + jitter--> issued and requested
//	                     |                    ^                                         |    |
//	                     |                    +---------------- Issued -----------------+    |
//	                     +---- Denied, Failed ----> refused <-------- Denied, Failed --------+
//
// A refusal is final for the pod, as with the kubelet: a pod that was never issued a certificate does not start, and a
// running pod keeps its files. Nothing is saved: after a restart the agent requests every certificate again, and the
// files in the volumes stay until the new certificates are there.
package podcert
