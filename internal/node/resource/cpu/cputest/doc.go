// Package cputest builds the machines that package cpu is tested and measured
// with where a real one would not do.
package cputest
