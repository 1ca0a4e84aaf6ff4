// Package poll looks again and again for something that nothing reports: no event, no channel and no descriptor. It
// owns nothing.
//
// It is for code without a context, such as the shim, which must stay small and so cannot link what package retry
// needs. Code with a context uses package retry.
package poll
