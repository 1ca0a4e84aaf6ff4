// Package usage sends clients what pods use, for as long as they watch it.
//
// It owns the last measurement. The kernel counts CPU time and memory and reports no changes, so someone has to look at
// the counters. The agent looks only while a client watches, and once for all of them.
//
//	Stats --measured by the first client whose line is due--> last measurement --> a line for each client
package usage
