package image

import "testing"

func TestSizeClass(t *testing.T) {
	for size, want := range map[uint64]string{0: "N/A", 1: "0-10MB", 10 << 20: "0-10MB", 10<<20 + 1: "10MB-100MB",
		2 << 30: "1GB-5GB", 200 << 30: "GT100GB"} {
		if got := sizeClass(size); got != want {
			t.Errorf("%d: %s, want %s", size, got, want)
		}
	}
}
