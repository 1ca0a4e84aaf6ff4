package progress

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/berth-run/berth/internal/cli/printer"
)

// State is how far a transfer is, in bytes. A Total of 0 is unknown, and so is a PerSecond of 0.
type State struct {
	// What names the transfer, such as "loading web.tar".
	What            string
	Done, Total     int64
	PerSecond       float64
	Elapsed         time.Duration
	Waiting, Silent bool // it waits for its turn; nothing arrives
	// Rest says what happens when all bytes have been transferred and the command has not ended yet.
	Rest string
}

// The widths of a bar, in characters.
const (
	maxBar = 30
	minBar = 8
)

// Text returns the state as a line of at most width characters. Without room for everything the bar goes first, and
// then the end of the line.
func (s State) Text(width int) string {
	head, facts := s.What, s.facts()
	bar := ""
	if s.Total > 0 && !s.Waiting {
		room := width - utf8.RuneCountInString(head) - utf8.RuneCountInString(facts) - len(" [] ")
		if room >= minBar {
			bar = s.bar(min(room, maxBar))
		}
	}
	text := []rune(head + bar + " " + facts)
	if width > 0 && len(text) > width {
		text = append(text[:max(width-1, 0)], '…')
	}
	return string(text)
}

// Line returns the state as a line for a log, without a bar.
func (s State) Line() string { return s.What + ": " + s.facts() }

// bar returns a bar of this many cells in brackets.
func (s State) bar(cells int) string {
	full := int(s.share() * float64(cells))
	return " [" + strings.Repeat("█", full) + strings.Repeat("░", cells-full) + "]"
}

// share returns the part that is done, between 0 and 1.
func (s State) share() float64 { return min(max(float64(s.Done)/float64(s.Total), 0), 1) }

func (s State) facts() string {
	if s.Waiting {
		return "waits for other pulls"
	}
	var parts []string
	switch {
	case s.Total > 0:
		parts = append(parts, fmt.Sprintf("%d%%", int(100*s.share())),
			printer.Bytes(uint64(s.Done))+" of "+printer.Bytes(uint64(s.Total)))
	case s.Done > 0:
		parts = append(parts, printer.Bytes(uint64(s.Done)))
	}
	complete := s.Total > 0 && s.Done >= s.Total
	if s.PerSecond >= 1 && !complete {
		parts = append(parts, printer.Bytes(uint64(s.PerSecond))+"/s")
	}
	switch left, known := s.left(); {
	case complete && s.Rest != "":
		parts = append(parts, s.Rest, Time(s.Elapsed))
	case s.Silent:
		parts = append(parts, "no progress", Time(s.Elapsed))
	case known && !complete:
		parts = append(parts, Time(left)+" left")
	default:
		parts = append(parts, Time(s.Elapsed))
	}
	return strings.Join(parts, ", ")
}

// left returns the time that the rest takes at this rate.
func (s State) left() (left time.Duration, known bool) {
	if s.Total <= 0 || s.PerSecond < 1 {
		return 0, false
	}
	seconds := float64(max(s.Total-s.Done, 0)) / s.PerSecond
	const most = 100 * 60 * 60 // beyond it a number says nothing
	if seconds > most {
		return 0, false
	}
	return time.Duration(math.Ceil(seconds)) * time.Second, true
}

// Time returns a duration in whole seconds, such as 7s, 2m05s or 1h10m.
func Time(d time.Duration) string {
	switch s := int(d.Seconds()); {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 60*60:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	default:
		return fmt.Sprintf("%dh%02dm", s/60/60, s/60%60)
	}
}

// rate measures bytes per second. Later measurements count more, so that it follows a change within some seconds.
type rate struct {
	perSecond float64
	at        time.Time
	done      int64
}

// measure adds the number of bytes that are done now. It returns the rate.
func (r *rate) measure(done int64, now time.Time) float64 {
	const memory = 3 * time.Second // after which a measurement has lost about two thirds of its weight
	elapsed := now.Sub(r.at)
	if elapsed < period { // too short for a rate
		return r.perSecond
	}
	current := float64(done-r.done) / elapsed.Seconds()
	if r.done == 0 {
		r.perSecond = current
	} else {
		keep := math.Exp(-elapsed.Seconds() / memory.Seconds())
		r.perSecond = keep*r.perSecond + (1-keep)*current
	}
	r.at, r.done = now, done
	return r.perSecond
}
