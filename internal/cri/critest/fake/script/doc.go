// Package script interprets the commands of the test workload (test/workload) without a process. It produces the
// effects of the program that CRI can show. Its only user is the fake runtime of package fake.
//
// The caller keeps the time: a process returns how long its next step takes, and the caller calls it again after that
// time. Files exist only below the container's mounts. There they are real files on the host.
package script
