//go:build cgo

package prefault

/*
// Symbols of the linker and of the C library: where the program begins, and where the data begin that it can change.
extern char __executable_start, __data_start;
*/
import "C"

import (
	"syscall"
	"unsafe"
)

const (
	// populateRead and populateWrite map the pages of a range as reading and writing them would do (madvise(2), since
	// Linux 5.14). Package unix has them too, but is initialised too late.
	populateRead, populateWrite = 22, 23
	// used is how much of its heap the process uses, in bytes (measured).
	used = 2 << 20
)

// heap is the address in the heap from which on this process has mapped memory, or 0.
var heap = prefault()

// prefault maps code and constants of the program, and the beginning of the heap, and returns heap.
func prefault() (heap uintptr) {
	// libcontainer gives this variable to the process that it starts. Nobody else sets it.
	if _, first := syscall.Getenv("_LIBCONTAINER_INITPIPE"); !first {
		return 0
	}
	code, data := address(&C.__executable_start), address(&C.__data_start)
	advise(code, data-code, populateRead)
	// Go takes the pages of objects and of stacks from lower to higher addresses. This stack is one of the first.
	var onStack byte
	heap = uintptr(unsafe.Pointer(&onStack))
	advise(heap, used, populateWrite)
	return heap
}

// address is the address of a symbol.
func address(symbol *C.char) uintptr { return uintptr(unsafe.Pointer(symbol)) }

// advise calls madvise for the pages from an address on. An error only means that the kernel maps pages later: it may
// be too old to know the advice, and the heap may end earlier.
func advise(from, size, advice uintptr) {
	begin := from &^ (uintptr(syscall.Getpagesize()) - 1)
	_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, begin, from+size-begin, advice)
}
