// Package logtest collects log lines for tests that look at them.
package logtest
