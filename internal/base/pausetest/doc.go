// Package pausetest pauses processes for tests of what happens while a program hangs.
package pausetest
