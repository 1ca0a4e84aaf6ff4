package podlog

// maxLine limits the memory for a line, in bytes: the joined line of a container before it is passed on in pieces, and
// the line of a file.
const maxLine = 1 << 20

// piece is a line of the container, or a part of one that exceeds maxLine.
type piece struct {
	Entry
	// continued says that the line began in an earlier piece.
	continued bool
}

// joiner joins entries into the container's lines. The streams of a container may be interleaved within a line, so each
// stream has its own state.
type joiner struct {
	stdout, stderr pending
}

// pending is the unfinished line of a stream.
type pending struct {
	piece
	begun bool // there is a line
}

func (j *joiner) of(s Stream) *pending {
	if s == Stderr {
		return &j.stderr
	}
	return &j.stdout
}

// add adds an entry and returns the piece that it completes, if any. The content of the piece is valid until the next
// call.
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

// rest returns the unfinished lines at the end of the log.
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
