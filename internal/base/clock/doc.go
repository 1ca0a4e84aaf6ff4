// Package clock compares times on a machine whose clock may be set while the agent runs.
//
// A time that this process has read belongs to two clocks: the machine's, which people and time services set, and the
// kernel's monotonic clock, which only advances (see package time; it stands still while the machine is suspended).
// Times of files, of the runtime and of the API server have only the machine's or another machine's clock.
//
// It owns nothing.
package clock
