package topology

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSubsets(t *testing.T) {
	type subset struct {
		Places uint64
		Nodes  Nodes
	}
	for _, test := range []struct {
		ids  []int
		size int
		want []subset
	}{
		{[]int{0, 2, 5}, 1, []subset{{1, Of(0)}, {2, Of(2)}, {4, Of(5)}}},
		{[]int{0, 2, 5}, 2, []subset{{3, Of(0, 2)}, {5, Of(0, 5)}, {6, Of(2, 5)}}},
		{[]int{0, 2, 5}, 3, []subset{{7, Of(0, 2, 5)}}},
		{[]int{0, 2, 5}, 4, nil},
		{nil, 1, nil},
	} {
		var got []subset
		for places, nodes := range Subsets(test.ids, test.size) {
			got = append(got, subset{places, nodes})
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%d of %v (-want +got):\n%s", test.size, test.ids, diff)
		}
	}
}
