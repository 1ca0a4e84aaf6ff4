// Package roottest is for tests that need root. It skips them, and says so, where they do not run as root: make unit
// runs as an ordinary user too, make test runs as root and skips none of them. It also makes their directories.
package roottest
