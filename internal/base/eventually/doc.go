// Package eventually lets tests wait for a state that something else reaches in its own time. It looks again and again,
// and fails the test after a minute. It owns nothing. Only tests use it.
package eventually
