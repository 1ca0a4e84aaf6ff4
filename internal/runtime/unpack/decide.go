package unpack

import "fmt"

// checkSize returns an error if an archive has unpacked to too many bytes, or if its sparse files are too large. out is
// the number of unpacked bytes so far, and in the number of compressed bytes that were read.
func (l Limits) checkSize(in, out, sparse int64) error {
	if out = max(out, sparse); out > l.Harmless && out/l.MaxRatio > in {
		return fmt.Errorf("%w: it unpacks to more than %d times its compressed size and more than %d bytes",
			errTooLarge, l.MaxRatio, l.Harmless)
	}
	return nil
}

// checkSpace returns an error if less than the reserve is free on the disk, in bytes or in inodes.
func (l Limits) checkSpace(s space) error {
	const part, most = 20, 1 << 30
	reserve := l.Reserve
	if reserve == 0 {
		reserve = min(s.Size/part, most)
	}
	if s.Free < reserve {
		return fmt.Errorf("%w: only %d bytes are free on the disk, and %d must stay free", errTooLarge, s.Free, reserve)
	}
	if s.Inodes > 0 && s.InodeFree < s.Inodes/part {
		return fmt.Errorf("%w: only %d inodes are free on the disk, and %d must stay free", errTooLarge, s.InodeFree,
			s.Inodes/part)
	}
	return nil
}
