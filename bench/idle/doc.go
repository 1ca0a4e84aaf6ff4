// Package idle measures what agent, runtime, shim and holders cost while pods run and nothing happens. It owns the
// goals for that.
package idle
