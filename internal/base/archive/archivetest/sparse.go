package archivetest

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// block is the unit of a tar stream in bytes.
const block = 512

// Sparse is a stream with one file. The file has size bytes, all of them in a hole (GNU format 1.0).
func Sparse(name string, size int64) []byte {
	records := ""
	for _, r := range []string{"GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name=" + name,
		"GNU.sparse.realsize=" + strconv.FormatInt(size, 10)} {
		records += fmt.Sprintf("%d %s\n", len(r)+len("10 \n"), r) // each record has 10 to 99 bytes
	}
	holes := fmt.Sprintf("1\n%d\n0\n", size)
	holes += strings.Repeat("\x00", block-len(holes))
	return Corrected([]byte(entry('x', records) + entry('0', holes) + strings.Repeat("\x00", 2*block)))
}

func entry(typ byte, content string) string {
	h := make([]byte, block)
	copy(h, "file")
	copy(h[100:], "0000644\x00")
	copy(h[124:], fmt.Sprintf("%011o\x00", len(content)))
	h[156] = typ
	copy(h[257:], "ustar\x0000")
	return string(h) + content + strings.Repeat("\x00", (block-len(content)%block)%block)
}

// Corrected returns a stream with a valid checksum in each header that can be reached. A stream with a wrong one ends
// there.
func Corrected(stream []byte) []byte {
	stream = bytes.Clone(stream)
	for at := 0; at+block <= len(stream); {
		h := stream[at : at+block]
		copy(h[148:156], "        ")
		sum := 0
		for _, b := range h {
			sum += int(b)
		}
		if sum == 8*' ' { // a block of zeros ends the stream
			copy(h[148:156], make([]byte, 8))
		} else {
			copy(h[148:156], fmt.Sprintf("%06o\x00 ", sum))
		}
		size, err := strconv.ParseInt(strings.Trim(string(h[124:136]), " \x00"), 8, 64)
		if err != nil || size < 0 || size > int64(len(stream)) {
			size = 0
		}
		at += block + int(size+block-1)/block*block
	}
	return stream
}
