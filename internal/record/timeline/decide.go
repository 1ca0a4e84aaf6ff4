package timeline

// The bounds of a timeline that does not end, of a pod that never becomes ready
// for example: how it began and what happened last are kept.
const (
	maxSpans  = 512
	headSpans = 64
)

// trim chooses the spans to forget when there are maxSpans: never one of the first headSpans
// and never one that has not ended; of the others the older half. It returns what
// is kept, in order, in the same array.
func trim(spans []held) []held {
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
	clear(spans[len(kept):]) // let go of the forgotten
	return kept
}

// surplus chooses the trails to forget, oldest first: the finished ones beyond
// limit, and any beyond 10 times limit, which only roots that are never ended can reach.
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
