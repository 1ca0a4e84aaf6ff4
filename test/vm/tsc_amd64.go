package main

// cycles reads the TSC.
func cycles() uint64
