// Package kubeapi is the connection to a cluster's API server: clients with
// budgets of their own, so that neither events nor a burst of reads delays a
// heartbeat or a status, and whether the server answers.
//
//	Main, Statuses ── connection 1 ──┐
//	Heartbeat ─────── connection 2 ──┼──> API server
//	Events ────────── connection 3 ──┘
//	      each answer, each failure ──> Health
//
// It owns the connections and Health, whose only writer is the traffic itself:
// nothing is asked for the sake of it. It does not own the client certificate,
// which it asks for at each handshake, nor any object.
package kubeapi
