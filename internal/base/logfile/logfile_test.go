package logfile

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Rotation times increase, whatever the clock does.
func TestNext(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 999e6, time.UTC)
	tests := []struct{ last, want string }{
		{"", "20260301-120000"},
		{"20260301-115959", "20260301-120000"},
		{"20260301-120000", "20260301-120000.999"},
		{"20260301-120000.998", "20260301-120000.999"},
		{"20260301-120000.999", "20260301-120001.000"},
		{"20260301-130000", "20260301-130000.001"},
	}
	for _, tt := range tests {
		if got := Next(tt.last, now); got != tt.want || got <= tt.last || !Valid(got) {
			t.Errorf("after %q comes %q, want %q", tt.last, got, tt.want)
		}
	}
}

func TestWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	writer, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if !Written(reader) {
		t.Error("open for writing: not written")
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	if Written(reader) {
		t.Error("closed: still written")
	}
	again, err := os.OpenFile(path, os.O_WRONLY|unix.O_NONBLOCK, 0) // a lease would refuse it
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
}

func TestStamp(t *testing.T) {
	tests := []struct {
		name, stamp string
		packed, ok  bool
	}{
		{"0.log.20260301-120000", "20260301-120000", false, true},
		{"0.log.20260301-120000.250", "20260301-120000.250", false, true},
		{"0.log.20260301-120000.gz", "20260301-120000", true, true},
		{"0.log", "", false, false},
		{"1.log.20260301-120000", "", false, false},
		{"0.log.20260301-120000.gz.tmp", "", false, false},
		{"0.log.bak", "", false, false},
	}
	for _, tt := range tests {
		stamp, packed, ok := Stamp(tt.name, "0.log")
		if ok != tt.ok || ok && (stamp != tt.stamp || packed != tt.packed) {
			t.Errorf("%s: %q, compressed %v, %v", tt.name, stamp, packed, ok)
		}
	}
}
