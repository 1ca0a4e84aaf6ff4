// Package proc reads the CPU time and memory of a process from /proc.
package proc
