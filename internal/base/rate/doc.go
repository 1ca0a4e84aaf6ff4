// Package rate computes how much CPU something uses from the CPU time that it has used up to successive moments.
package rate
