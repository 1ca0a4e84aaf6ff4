package embedded

import "testing"

func TestNRI(t *testing.T) {
	for _, test := range []struct {
		flag        string
		defaultRoot bool
		path        string
		on          bool
	}{
		{"", true, DefaultNRISocket, true},
		{"", false, "", true},
		{"/run/n.sock", true, "/run/n.sock", true},
		{"/run/n.sock", false, "/run/n.sock", true},
		{NRIOff, true, "", false},
		{NRIOff, false, "", false},
	} {
		s := Settings{NRISocket: test.flag}
		if path, on := s.NRI(test.defaultRoot); path != test.path || on != test.on {
			t.Errorf("--nri-socket=%q, default root %v: %q, %v; want %q, %v", test.flag, test.defaultRoot, path, on,
				test.path, test.on)
		}
	}
}
