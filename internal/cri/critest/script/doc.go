// Package script interprets the commands of the test workload (test/workload)
// without a process: it does what the program would do as far as that can be
// seen through CRI. Its only user is the fake runtime of package critest.
//
// Time passes at the caller's side: a process tells how long it would take, and
// is called again then. Files exist only below the container's mounts, where they
// are real.
package script
