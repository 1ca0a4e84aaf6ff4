package image

// queue limits how many pulls run at the same time. Its caller holds pool.mu.
type queue struct {
	limit, used int // limit 0: no limit
	waiting     []*pull
	arrived     int
}

// enter gives a pull a slot, now or later. It closes the pull's turn when it has one.
func (q *queue) enter(p *pull) {
	q.arrived++
	p.arrived = q.arrived
	q.waiting = append(q.waiting, p)
	q.next()
}

// leave frees the slot of a pull, or removes it from those that wait. It may be called more than once.
func (q *queue) leave(p *pull) {
	for i, other := range q.waiting {
		if other == p {
			q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
			break
		}
	}
	if p.slot {
		p.slot = false
		q.used--
	}
	q.next()
}

func (q *queue) next() {
	for len(q.waiting) > 0 && (q.limit <= 0 || q.used < q.limit) {
		i := first(q.waiting)
		p := q.waiting[i]
		q.waiting = append(q.waiting[:i], q.waiting[i+1:]...)
		q.used++
		p.slot = true
		close(p.turn)
	}
}

// first returns the index of the next pull: the oldest one of those with the highest priority.
func first(waiting []*pull) int {
	best := 0
	for i, p := range waiting {
		b := waiting[best]
		if p.priority > b.priority || p.priority == b.priority && p.arrived < b.arrived {
			best = i
		}
	}
	return best
}
