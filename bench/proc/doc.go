// Package proc reads what a process has used of the machine, from /proc.
package proc
