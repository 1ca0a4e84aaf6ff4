// Package clock compares times on a machine whose clock may be set while the agent
// runs.
//
// A time that was read here is known to two clocks: the machine's, which people and
// time services set, and the kernel's monotonic one, which only goes on (package
// time; it stands still while the machine sleeps). Times of files, of the runtime
// and of the API server are of the machine's clock, or another's, alone.
//
// It owns nothing and keeps nothing: who compares such times reads it.
package clock
