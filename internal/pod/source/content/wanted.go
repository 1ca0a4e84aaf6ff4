package content

import (
	"slices"
	"time"

	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
)

// Wanted holds the pods and objects that an origin wants on this node.
type Wanted struct {
	Pods    []*pod.Pod
	Objects []*Item
	// Dir is the directory of the file that the origin is. It is zero for other origins.
	Dir object.Directory
	// Faulty says that a part of the origin cannot be used, even if this is not reported yet.
	Faulty bool
}

// Empty reports whether nothing is wanted.
func (w Wanted) Empty() bool { return len(w.Pods)+len(w.Objects) == 0 }

// Keep returns what a manifest stands for after a change. A manifest without faults stands for its content. One with
// faults may be half written, so what its earlier version gave stays unless a good document replaces it.
func Keep(last, good Wanted, faulty bool) Wanted {
	if !faulty {
		return good
	}
	return Wanted{
		Pods:    kept(last.Pods, good.Pods, func(a, b *pod.Pod) bool { return a.Key() == b.Key() }),
		Objects: kept(last.Objects, good.Objects, func(a, b *Item) bool { return a.Key() == b.Key() }),
	}
}

func kept[T any](last, good []T, same func(a, b T) bool) []T {
	all := slices.Clone(good)
	for _, l := range last {
		if !slices.ContainsFunc(good, func(g T) bool { return same(g, l) }) {
			all = append(all, l)
		}
	}
	return all
}

// Sink receives what origins want. At is when the change was noticed.
type Sink interface {
	// Put replaces what an origin wants. The caller must not use w afterwards.
	Put(origin string, w Wanted, problems []Problem, at time.Time)
	// Drop removes an origin.
	Drop(origin string, at time.Time)
	// List records that the directory at a path has been read completely. A zero identity says that it is not there.
	List(path string, id object.Directory)
}
