package usage

import (
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/google/go-cmp/cmp"
)

func TestConditionOf(t *testing.T) {
	for name, test := range map[string]struct {
		unknown string
		want    Health
	}{
		"none":                      {"", Health{}},
		"normal":                    {"\x12\x00", Health{}},
		"abnormal":                  {"\x12\x07\x08\x01\x12\x03bad", Health{true, "bad"}},
		"after a field that is new": {"\x1d\x01\x02\x03\x04\x12\x02\x08\x01", Health{true, ""}},
		"cut off":                   {"\x12\x07\x08\x01", Health{}},
		"condition cut off":         {"\x12\x04\x08\x01\x12\x09", Health{true, ""}},
	} {
		answer := &csi.NodeGetVolumeStatsResponse{}
		answer.ProtoReflect().SetUnknown([]byte(test.unknown))
		if diff := cmp.Diff(test.want, ConditionOf(answer)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
