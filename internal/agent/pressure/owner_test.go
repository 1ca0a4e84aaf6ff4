package pressure

import "testing"

func TestWithin(t *testing.T) {
	for _, test := range []struct {
		cgroup, pod, below string
		ok                 bool
	}{
		{"/kubepods/pod1/abc", "/kubepods/pod1", "abc", true},
		{"/kubepods/pod1", "/kubepods/pod1", "", true},
		{"/host/slice/kubepods/pod1/abc/inner", "kubepods/pod1", "abc/inner", true},
		{"/kubepods/pod12/abc", "/kubepods/pod1", "", false},
		{"/kubepods", "/kubepods/pod1", "", false},
		{"/", "/kubepods/pod1", "", false},
	} {
		if below, ok := within(test.cgroup, test.pod); below != test.below || ok != test.ok {
			t.Errorf("%s within %s: %q, %t", test.cgroup, test.pod, below, ok)
		}
	}
}
