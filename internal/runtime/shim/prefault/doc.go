// Package prefault maps memory that a container's first process is about to use, in the program that imports it. The
// process lives for a moment: Go's runtime and packages start, it sets the container up, and executes the container's
// program. By itself it has some 700 page faults in that time, and each can cost a virtual machine twenty times as much
// as the page. Two calls map a third of these pages.
//
// It does so when its variables are initialised. By the order of import paths, that is before most packages of
// libraries are. In any other process of the program it does nothing.
package prefault
