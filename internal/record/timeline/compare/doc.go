// Package compare finds out where the time of several pod starts went: how long each step took in most of them, and in
// the slowest. It is pure: it reads timelines and owns nothing.
package compare
