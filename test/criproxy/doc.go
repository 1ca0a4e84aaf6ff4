// Package criproxy stands between an agent and a real runtime. It passes CRI calls on, and changes answers as a test
// wants, for example to act as a damaged or very slow runtime.
package criproxy
