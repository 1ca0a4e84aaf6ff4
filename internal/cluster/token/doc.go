// Package token hands out what only a control plane can: tokens of service
// accounts (TokenRequest), bound to a pod, for its volumes and for credential
// providers, and trust bundles for its volumes.
//
// It owns the tokens of the pods of this node, in memory. A token is asked for
// once for each pod, service account, audience and life, and again at 80 % of its
// life or after a day. While the API server is away the token that there is stays
// until it ends.
//
//	none --Token--> fresh --80 % of its life, or 24 h--> due --renewed--> fresh
//	                                                      |
//	                                          failed: used until it ends, tried again later
//
// Nothing here runs by itself: who asks is told when to ask again.
package token
