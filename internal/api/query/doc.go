// Package query reads the query parameters of requests to the local API. It keeps no state.
package query
