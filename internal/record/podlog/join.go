package podlog

// maxLine bounds what is held of a line, in bytes: what one of the container's is
// joined to before it is passed on in pieces, and what one of a file may have.
const maxLine = 1 << 20

// piece is a line of the container's, or a part of one that is too long to be held.
type piece struct {
	Entry
	// continued: the line began in an earlier piece.
	continued bool
}

// joiner makes the container's lines of entries. The streams of a container may
// be interleaved in the middle of a line, so each has its own.
type joiner struct {
	stdout, stderr pending
}

// pending is the line of one stream that has not ended.
type pending struct {
	piece
	begun bool // there is one
}

func (j *joiner) of(s Stream) *pending {
	if s == Stderr {
		return &j.stderr
	}
	return &j.stdout
}

// add takes an entry and returns the piece it completes, if it does. The piece's
// content is good until the next call.
func (j *joiner) add(e Entry) (piece, bool) {
	p := j.of(e.Stream)
	if !p.begun && !e.Partial {
		return piece{Entry: e}, true
	}
	if !p.begun {
		p.piece = piece{Entry: Entry{Time: e.Time, Stream: e.Stream, Content: p.Content[:0]}}
		p.begun = true
	}
	p.Content = append(p.Content, e.Content...)
	p.Partial = e.Partial
	if e.Partial && len(p.Content) < maxLine {
		return piece{}, false
	}
	done := p.piece
	p.begun = e.Partial
	p.piece = piece{Entry: Entry{Time: e.Time, Stream: e.Stream, Content: p.Content[:0]}, continued: true}
	return done, true
}

// rest returns what has begun and will not end, at the end of the log.
func (j *joiner) rest() []piece {
	var all []piece
	for _, p := range []*pending{&j.stdout, &j.stderr} {
		if p.begun && len(p.Content) > 0 {
			all = append(all, p.piece)
		}
		p.begun = false
	}
	return all
}
