// Package kubeapi is the connection to a cluster's API server. Its clients have separate rate limits and connections,
// so that neither events nor a burst of reads or reviews delays a heartbeat or a status. It also knows whether the
// server answers.
//
//	Main, Statuses ────────────── connection 1 ──┐
//	Heartbeat ─────────────────── connection 2 ──┼──> API server
//	Events ────────────────────── connection 3 ──┤
//	TokenReviews, AccessReviews ─ connection 4 ──┘
//	      each response, each failure ──> Health
//
// It owns the connections and Health. Health is updated only by the traffic: no request is sent just to check the
// server. It does not own the client certificate, which it gets from its Options at each handshake, nor any object.
package kubeapi
