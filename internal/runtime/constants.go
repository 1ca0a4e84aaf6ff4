package runtime

import (
	"debug/elf"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// dropConstants lets go of the pages that hold this program's constants. A good
// part of them are the programs within, which are read once; what is needed again
// comes back from the page cache. Only segments that can never be written to are
// touched, of a program that lies where it was linked to: no other page may differ
// from its file.
func dropConstants() error {
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
		if s.Type != elf.PT_LOAD || s.Flags != elf.PF_R {
			continue
		}
		from, to := (s.Vaddr+page-1)/page*page, (s.Vaddr+s.Filesz)/page*page
		if from >= to {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, uintptr(from), uintptr(to-from), unix.MADV_DONTNEED); errno != 0 {
			return fmt.Errorf("let go of the constants at %x-%x: %w", from, to, errno)
		}
	}
	return nil
}
