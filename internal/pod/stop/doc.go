// Package stop ends pods for the node's sake, and tells of it. It owns nothing: the
// fleet ends them.
package stop
