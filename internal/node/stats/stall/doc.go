// Package stall reads pressure stall information (PSI): the share of the time in which processes wait for CPU, memory
// or a disk. https://docs.kernel.org/accounting/psi.html
package stall
