// Package docker connects to a Docker Engine over its API.
//
// It owns the connection: the endpoint, the negotiated version of the API and which features need which version, and
// the gRPC code of each error. It keeps no state of containers. Package dockershim translates the CRI to this API;
// packages dockerlog, dockerstream and dockerstats do the same for logs, streams and statistics.
package docker
