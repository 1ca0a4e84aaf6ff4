// Package looptest runs loops in tests.
package looptest
