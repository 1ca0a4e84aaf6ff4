package history

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/internal/base/looptest"
)

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func TestBetweenGivesRates(t *testing.T) {
	before := counters{at: began, busy: 100, read: 1000, wrote: 0, stall: [stalls]float64{1, 2, unknown, 4, 5}}
	after := counters{at: began.Add(10 * time.Second), busy: 115, read: 3000, wrote: 50,
		stall: [stalls]float64{6, 2, unknown, 400, 4}, now: [disk + 1]int64{memory: 1 << 30, disk: unknown}}
	want := Sample{Time: began.Unix() + 10,
		Values: [fields]float32{1.5, 1 << 30, unknown, 200, 5, 0.5, 0, unknown, 1, unknown}}
	if diff := cmp.Diff(want, between(before, after)); diff != "" {
		t.Error(diff)
	}
}

func TestSlotsAreReadAsWritten(t *testing.T) {
	s := Sample{Time: began.Unix(), Values: [fields]float32{1, 2, unknown}}
	slot := s.encode()
	if got, ok := decode(slot); !ok || got != s || len(slot) != slotSize {
		t.Errorf("%+v, %t, %d bytes", got, ok, len(slot))
	}
	for i := range slot {
		damaged := append([]byte(nil), slot...)
		damaged[i] ^= 1
		if got, ok := decode(damaged); ok {
			t.Errorf("damaged byte %d: %+v", i, got)
		}
	}
	if _, ok := decode(make([]byte, slotSize)); ok {
		t.Error("an empty slot has a sample")
	}
}

func FuzzDecodeAll(f *testing.F) {
	f.Add(append([]byte(magic), Sample{Time: 1000}.encode()...))
	f.Add([]byte("something else"))
	f.Fuzz(func(t *testing.T, file []byte) {
		for _, s := range decodeAll(file, 2000) {
			if s.Time > 2000 || s.Time <= 2000-int64(Interval/time.Second)*int64(Kept) {
				t.Errorf("sample of %d at 2000", s.Time)
			}
		}
	})
}

// options returns options for the History of a small machine, whose files are below host.
func options(t *testing.T) Options {
	host := t.TempDir()
	for name, text := range map[string]string{
		"proc/stat":    "cpu  100 0 50 1000 30 0 7 3 40 0\ncpu0 1 2 3 4\n",
		"proc/meminfo": "MemTotal:        1000 kB\nMemFree: 1 kB\nMemAvailable:     400 kB\n",
		"proc/diskstats": " 8 0 sda 1 2 10 4 5 6 20 8 9 10 11\n 8 1 sda1 1 2 10 4 5 6 20 8 9 10 11\n" +
			" 254 0 dm-0 1 2 10 4 5 6 20 8 9 10 11\n",
		"proc/pressure/memory": "some avg10=0.00 avg60=0.00 avg300=0.00 total=2000000\n" +
			"full avg10=0.00 avg60=0.00 avg300=0.00 total=5\n",
		"sys/block/sda/device/rev": "1",
	} {
		path := filepath.Join(host, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return Options{Dir: filepath.Join(t.TempDir(), "history"), Host: host, Disk: host,
		Log: slog.New(slog.DiscardHandler)}
}

func TestReadOfASmallMachine(t *testing.T) {
	o := options(t)
	o.Disk = filepath.Join(o.Host, "missing")
	got := New(o).reader.read(began)
	want := counters{at: began, busy: 1.6, read: 5120, wrote: 10240,
		stall: [stalls]float64{unknown, 2, 5e-6, unknown, unknown},
		now:   [disk + 1]int64{memory: 600 << 10, disk: unknown}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(counters{})); diff != "" {
		t.Error(diff)
	}
}

// run runs a History until its context ends.
func run(t *testing.T, h *History) (stop func()) {
	return looptest.Start(t, h.Run, context.Canceled)
}

func TestSamplesOutliveTheAgentAndAreBounded(t *testing.T) {
	o := options(t)
	synctest.Test(t, func(t *testing.T) {
		h := New(o)
		stop := run(t, h)
		time.Sleep(time.Hour + time.Minute/2)
		synctest.Wait()
		if n := len(h.Since(0)); n != 121 {
			t.Errorf("%d samples after an hour, want 121", n)
		}
		stop()
		h = New(o)
		if n := len(h.Since(0)); n != 121 {
			t.Errorf("the next agent has %d samples, want 121", n)
		}
		stop = run(t, h)
		time.Sleep(3 * 24 * time.Hour)
		synctest.Wait()
		all := h.Since(0)
		if n := len(all); n != Kept {
			t.Errorf("%d samples after three days, want %d", n, Kept)
		}
		if age := time.Now().Unix() - all[0].Time; age > 24*60*60 {
			t.Errorf("the oldest sample is %d s old", age)
		}
		for i := range all[1:] {
			if all[i+1].Time-all[i].Time != 30 {
				t.Fatalf("%d s between two samples", all[i+1].Time-all[i].Time)
			}
		}
		stop()
	})
	info, err := os.Stat(filepath.Join(o.Dir, "samples"))
	if err != nil || info.Size() > int64(len(magic)+Kept*slotSize) {
		t.Errorf("%v, %v", info, err)
	}
}

func TestHistoryWorksWithoutItsDirectory(t *testing.T) {
	o := options(t)
	if err := os.WriteFile(o.Dir, nil, 0o600); err != nil { // a file in place of the directory
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		h := New(o)
		stop := run(t, h)
		time.Sleep(48 * time.Hour)
		synctest.Wait()
		if n := len(h.Since(0)); n < Kept-flush || n > Kept {
			t.Errorf("%d samples in memory", n)
		}
		stop()
	})
}

func TestWatchYieldsNewSamples(t *testing.T) {
	o := options(t)
	synctest.Test(t, func(t *testing.T) {
		h := New(o)
		stop := run(t, h)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var counts []int
		for some := range h.Watch(ctx, 0) {
			counts = append(counts, len(some))
			if len(counts) == 4 {
				break
			}
		}
		if diff := cmp.Diff([]int{10, 1, 1, 1}, counts); diff != "" {
			t.Error(diff)
		}
		stop()
	})
}

// A sample of this machine.
func BenchmarkRead(b *testing.B) {
	h := New(Options{Host: "/", Disk: "/"})
	b.ReportAllocs()
	for b.Loop() {
		h.reader.read(began)
	}
}
