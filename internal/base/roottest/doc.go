// Package roottest skips tests that need root, and says so. make unit runs as an ordinary user too; make test runs as
// root and skips none of them.
package roottest
