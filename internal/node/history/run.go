package history

import (
	"context"
	"io"
	"os"
	"time"
)

// flush is how many samples are written together: the samples of five minutes.
const flush = 10

// Run takes a sample every Interval until ctx ends. Then it writes the last ones.
func (h *History) Run(ctx context.Context) error {
	if err := os.MkdirAll(h.opts.Dir, 0o700); err != nil {
		h.opts.Log.Warn("cannot keep the history of the node on disk, keeping it in memory", "err", err)
	}
	defer h.save()
	last := h.reader.read(h.opts.Now())
	timer := time.NewTimer(next(last.at).Sub(last.at))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
		now := h.reader.read(h.opts.Now())
		if h.add(between(last, now))%flush == 0 {
			h.save()
		}
		last = now
		timer.Reset(next(now.at).Sub(now.at))
	}
}

// save writes the pending samples. They stay pending after a failure.
func (h *History) save() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.pending) == 0 {
		return
	}
	if err := write(h.path(), h.pending); err != nil {
		h.opts.Log.Warn("cannot write the history of the node, trying again later", "err", err)
		return
	}
	h.pending = nil
}

// write writes samples to their slots. The file needs no sync: after a power failure a lost sample is a gap in a
// picture.
func write(path string, some []Sample) (err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if closed := file.Close(); err == nil {
			err = closed
		}
	}()
	begin := make([]byte, len(magic))
	if _, err := io.ReadFull(file, begin); err != nil || string(begin) != magic {
		if err := file.Truncate(0); err != nil {
			return err
		}
		if _, err := file.WriteAt([]byte(magic), 0); err != nil {
			return err
		}
	}
	for _, s := range some {
		if _, err := file.WriteAt(s.encode(), int64(len(magic))+s.slot()*slotSize); err != nil {
			return err
		}
	}
	return nil
}
