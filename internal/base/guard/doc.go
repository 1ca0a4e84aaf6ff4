// Package guard keeps a panic in the work for one subject, such as a pod, from ending the work for all others.
//
// There are three ways to run a function. They differ in what happens with a panic:
//
//	Call, Go, Group  work for one subject only: the panic becomes an error (Panic) with its stack
//	About            work for one subject in a loop that serves many: the panic names the subject and ends the process
//	neither          the panic ends the process
//
// A loop that serves many subjects must not go on after a panic, because its own state may be half changed. Package
// crash keeps the last output of such a process.
package guard
