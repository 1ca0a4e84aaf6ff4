package follow

import (
	"bytes"
	"fmt"
	"io"
	"time"

	"github.com/berth-run/berth/internal/record/timeline"
)

// screen shows the logs, the progress and the timelines of the pods.
type screen struct {
	logs     *Lines
	progress *Lines // and timelines
	start    time.Time
	now      func() time.Time
}

// print writes a line of progress, with the time since the start.
func (s *screen) print(line string) {
	w := s.progress.Prefixed(fmt.Sprintf("%8.3fs ", s.now().Sub(s.start).Seconds()))
	_, _ = io.WriteString(w, line+"\n") // there is no other place to report the error
}

// draw writes a timeline in this many columns.
func (s *screen) draw(line *timeline.Timeline, width int, color bool) {
	var picture bytes.Buffer
	if err := timeline.Draw(&picture, *line, width, timeline.DrawOptions{Color: color}); err != nil {
		return // it cannot fail: a buffer accepts every write
	}
	_, _ = s.progress.Prefixed("").Write(append(bytes.TrimLeft(picture.Bytes(), "\n"), '\n'))
}
