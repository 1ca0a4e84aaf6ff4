package foundation

import (
	"context"
	"errors"
	"testing"
)

func TestStopReturnsTheErrorOfAPart(t *testing.T) {
	broken := errors.New("disk full")
	for name, c := range map[string]struct {
		part func(context.Context) error
		want error
	}{
		"ended by Stop": {func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, nil},
		"failed":        {func(context.Context) error { return broken }, broken},
	} {
		ended := make(chan struct{})
		f := New(t.Context(), func() { close(ended) })
		f.Launch(c.part)
		if c.want != nil {
			<-ended // before Stop
		}
		if err := f.Stop(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		<-ended
	}
}
