// Package firstgc delays the first garbage collection of the program that imports it. Most of what a command of berth
// allocates are the tables that packages build when the program starts. Go's default of 4 MiB collects them once or
// twice, which is a seventh of the time of a short command.
package firstgc
