// Package calls records the calls that a plugin for tests receives, so that tests can wait for them.
package calls
