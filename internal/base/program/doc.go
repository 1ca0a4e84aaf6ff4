// Package program runs programs of this machine that may hang: drivers and tools of administrators. A program and the
// processes that it started end with its deadline or its context.
package program
