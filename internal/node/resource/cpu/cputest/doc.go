// Package cputest builds machines for the tests and benchmarks of package cpu.
package cputest
