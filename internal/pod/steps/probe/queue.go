package probe

import "container/heap"

// queue orders the waiting jobs by when they are due. A job knows its place in it.
type queue []*job

func (q *queue) put(j *job) { heap.Push((*ordered)(q), j) }

func (q *queue) remove(j *job) {
	if j.place >= 0 {
		heap.Remove((*ordered)(q), j.place)
	}
}

// ordered is queue for package heap, which needs exported methods.
type ordered []*job

func (o ordered) Len() int           { return len(o) }
func (o ordered) Less(a, b int) bool { return o[a].state.Due.Before(o[b].state.Due) }
func (o ordered) Swap(a, b int) {
	o[a], o[b] = o[b], o[a]
	o[a].place, o[b].place = a, b
}

func (o *ordered) Push(x any) {
	j := x.(*job)
	j.place = len(*o)
	*o = append(*o, j)
}

func (o *ordered) Pop() any {
	last := len(*o) - 1
	j := (*o)[last]
	(*o)[last] = nil
	*o = (*o)[:last]
	j.place = -1
	return j
}
