package pages

import (
	"debug/elf"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Drop returns the memory of this program's code and constants to the kernel. Most of these pages were
// needed only once, to initialise the linked packages and to install the embedded programs. The kernel reads a page
// again from the page cache when it is used. Huge pages are turned off, since each would bring back a large part of the
// file.
//
// Only segments that can never be written to are dropped, and only if the program is not relocatable: other pages could
// differ from the file.
func Drop() error {
	self, err := elf.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer func() { _ = self.Close() }() // the file is open only for reading
	if self.Type != elf.ET_EXEC {
		return nil
	}
	page := uint64(os.Getpagesize())
	for _, s := range self.Progs {
		if s.Type != elf.PT_LOAD || s.Flags&elf.PF_W != 0 {
			continue
		}
		from, to := (s.Vaddr+page-1)/page*page, (s.Vaddr+s.Filesz)/page*page
		if from >= to {
			continue
		}
		for _, advice := range []uintptr{unix.MADV_NOHUGEPAGE, unix.MADV_DONTNEED} {
			_, _, errno := unix.Syscall(unix.SYS_MADVISE, uintptr(from), uintptr(to-from), advice)
			if errno != 0 && (advice != unix.MADV_NOHUGEPAGE || errno != unix.EINVAL) { // a kernel without huge pages
				return fmt.Errorf("drop program pages at %x-%x: %w", from, to, errno)
			}
		}
	}
	return nil
}
