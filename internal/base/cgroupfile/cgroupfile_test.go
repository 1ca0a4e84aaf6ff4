package cgroupfile

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSharesAndQuota(t *testing.T) {
	for milli, want := range map[int64]uint64{0: 2, 1: 2, 250: 256, 1000: 1024, 1 << 40: 262144} {
		if got := Shares(milli); got != want {
			t.Errorf("Shares(%d) = %d, want %d", milli, got, want)
		}
	}
	for milli, want := range map[int64]int64{0: 0, 1: 1000, 250: 25000, 2000: 200000} {
		if got := Quota(milli, DefaultPeriod); got != want {
			t.Errorf("Quota(%d) = %d, want %d", milli, got, want)
		}
	}
}

func TestValues(t *testing.T) {
	b := Bounds{CPUs: "1,0", Mems: "0", Shares: 512, Quota: 50000, Period: 100000, Memory: 4097, High: 8192, Pids: -1}
	for name, test := range map[string]struct {
		bounds  Bounds
		unified bool
		want    Values
	}{
		"version 1": {b, false, Values{
			"cpuset.cpus": "0-1", "cpuset.mems": "0", "cpu.shares": "512", "cpu.cfs_quota_us": "50000",
			"cpu.cfs_period_us":     "100000",
			"memory.limit_in_bytes": "4096", "pids.max": None,
		}},
		"version 2": {b, true, Values{
			"cpuset.cpus": "0-1", "cpuset.mems": "0", "cpu.weight": "59|20", "cpu.max": "50000 100000",
			"memory.max": "4096", "memory.high": "8192",
			"pids.max": None,
		}},
		"no bounds":     {Bounds{Quota: -1, Memory: -1}, true, Values{"cpu.max": None, "memory.max": None}},
		"not looked at": {Bounds{}, false, Values{}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, test.bounds.Values(test.unified)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCanonical(t *testing.T) {
	for _, test := range []struct{ file, text, want string }{
		{"cpuset.cpus", "0,1,3\n", "0-1,3"}, {"cpuset.cpus", "\n", ""}, {"cpuset.cpus", "0-4294967295", "0-4294967295"},
		{"memory.limit_in_bytes", "9223372036854771712", None}, {"memory.max", "max", None},
		{"memory.max", "8191", "4096"},
		{"cpu.cfs_quota_us", "-1", None}, {"cpu.max", "max 100000", None}, {"cpu.max", "1000 100000\n", "1000 100000"},
		{"pids.max", "max", None}, {"cpu.shares", "2", "2"},
	} {
		if got := Canonical(test.file, test.text); got != test.want {
			t.Errorf("%s %q: got %q, want %q", test.file, test.text, got, test.want)
		}
	}
}

func TestDifferences(t *testing.T) {
	want := Values{"cpu.weight": "59|20", "cpu.max": None, "pids.max": "7"}
	for name, test := range map[string]struct {
		have Values
		want []Change
	}{
		"as they should be":         {Values{"cpu.weight": "20", "cpu.max": None, "pids.max": "7"}, nil},
		"a controller is not there": {Values{"cpu.weight": "59"}, nil},
		"two are not": {Values{"cpu.weight": "1", "cpu.max": "5 5", "pids.max": "7"},
			[]Change{{"cpu.max", "5 5", None}, {"cpu.weight", "1", "59"}}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Differences(want, test.have)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
