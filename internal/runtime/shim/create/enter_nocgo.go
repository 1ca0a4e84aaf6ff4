//go:build !cgo

package create

// enters says that this program was built without nsenter, for tests of other parts on a machine without a C compiler.
const enters = false
