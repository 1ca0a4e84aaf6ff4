// Package limittest checks in tests which connections an HTTP server ends.
package limittest
