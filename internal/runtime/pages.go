package runtime

import (
	"debug/elf"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// dropInitialisation lets go of the pages that hold this program's code and constants. Most of them were needed
// once: by the initialisation of what is linked, and for the programs within. What is needed again comes back from
// the page cache, and not in huge pages, which would bring most of the file back. Only segments that can never be
// written to are touched, of a program that lies where it was linked to: no other page may differ from its file.
func dropInitialisation() error {
	self, err := elf.Open(selfPath)
	if err != nil {
		return err
	}
	defer func() { _ = self.Close() }() // it was only read
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
				return fmt.Errorf("let go of the program's pages at %x-%x: %w", from, to, errno)
			}
		}
	}
	return nil
}
