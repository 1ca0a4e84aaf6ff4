package timeline

// Limits of a timeline that does not end, such as the timeline of a pod that never becomes ready. Its first and its
// last spans are kept.
const (
	maxSpans  = 512
	headSpans = 64
)

// trim removes spans when there are maxSpans. It never removes one of the first headSpans or one that has not ended,
// and removes the older half of the others. It returns the rest, in order, in the same array.
func trim(spans []recorded) []recorded {
	ended := 0
	for _, s := range spans[min(headSpans, len(spans)):] {
		if s.ended {
			ended++
		}
	}
	forget := (ended + 1) / 2
	kept := spans[:0]
	for i, s := range spans {
		if i >= headSpans && s.ended && forget > 0 {
			forget--
			continue
		}
		kept = append(kept, s)
	}
	clear(spans[len(kept):]) // releases the memory of the removed spans
	return kept
}

// surplus selects the trails to remove, oldest first: finished ones beyond limit, and any beyond 10 times limit, which
// only happens if roots never end.
func surplus(trails []*trail, limit int) (kept, gone []*trail) {
	finished := 0
	for _, t := range trails {
		if t.finished {
			finished++
		}
	}
	total := len(trails)
	for _, t := range trails {
		switch {
		case t.finished && finished > limit:
			finished--
		case total > 10*limit:
			if t.finished {
				finished--
			}
		default:
			kept = append(kept, t)
			continue
		}
		total--
		gone = append(gone, t)
	}
	return kept, gone
}
