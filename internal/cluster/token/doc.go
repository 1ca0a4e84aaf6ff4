// Package token gets the credentials that only a control plane can issue: tokens of service accounts (TokenRequest) for
// volumes and credential providers, each bound to a pod, and trust bundles for volumes. Package podcert gets
// certificates of pods.
//
// It owns the tokens of the pods of this node, in memory. A token is requested once for each pod, service account,
// audience and life. It is renewed at 80 % of its life or after a day. While the API server is away, the current
// token is used until it expires.
//
//	none --Token--> valid --80 % of its life, or 24 h--> due --renewed--> valid
//	                                                      |
//	                                   renewal failed: used until it expires, retried later
//
// The package has no loop: the caller of Token gets the time of the next call.
package token
