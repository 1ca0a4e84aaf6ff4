package poll

import "time"

// Pace says how often to look, and for how long.
type Pace struct {
	// First is the pause after the first look. Each pause after it is twice as long, up to Slowest. If Slowest is 0,
	// all pauses are First.
	First, Slowest time.Duration
	// Limit is how long to look. 0 means for ever.
	Limit time.Duration
}

// Until calls look until it returns true. It returns false if look has not returned true within Limit. It calls look at
// least once.
func (p Pace) Until(look func() (done bool)) bool {
	start := time.Now()
	for pause := p.First; !look(); pause = min(2*pause, max(p.First, p.Slowest)) {
		if p.Limit > 0 && time.Since(start) > p.Limit {
			return false
		}
		time.Sleep(pause)
	}
	return true
}
