package idle

import (
	"context"
	"time"
)

// Follow calls busy and rest until ctx ends. A busy time begins with an activity: active fires. It ends when
// there was none for quiet, and at the first activity after limit, if limit is not 0. Follow calls busy at each
// activity in it, and rest at its end. first says that the activity begins the busy time.
func Follow(ctx context.Context, active <-chan struct{}, quiet, limit time.Duration, busy func(first bool),
	rest func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-active:
			busy(true)
		}
		for began, resting := time.Now(), false; !resting && (limit == 0 || time.Since(began) < limit); {
			select {
			case <-ctx.Done():
				return
			case <-active:
				busy(false)
			case <-time.After(quiet):
				resting = true
			}
		}
		rest()
	}
}
