package event

import (
	"cmp"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const combinedPrefix = "(combined from similar events): "

// groupKey identifies similar events.
type groupKey struct {
	ref       corev1.ObjectReference
	eventType string
	reason    string
}

// group holds the events in the ring with one key. They share the key's memory.
type group struct {
	groupKey
	similar  similar
	live     int     // records in the ring
	combined *record // the event for all messages after the first similarMax, or nil
}

// record is one event in the ring.
type record struct {
	content
	prev, next *record
}

// content is the part of a record that readers and the journal get a copy of.
type content struct {
	group   *group // without the recorder's lock only its key may be read
	message string
	// annotations are never changed.
	annotations map[string]string
	combined    bool
	count       int32
	seq         uint64 // the revision at its creation: its identity
	rev         uint64 // the revision of its last change
	first       time.Time
	last        time.Time
}

// textKey finds the record whose count a repeat increases.
type textKey struct {
	group   *group
	message string
}

// ring holds the last max events, oldest change first. It is a linked list, because a repeat moves its event to the
// end. The events that changed after a revision are therefore always at its end.
type ring struct {
	max    int
	len    int
	rev    uint64  // of the last change
	ends   *record // sentinel: ends.next is the oldest, ends.prev the newest
	groups map[groupKey]*group
	texts  map[textKey]*record
	// removed counts the records that were removed since reindex.
	removed int
}

func newRing(limit int) *ring {
	ends := &record{}
	ends.prev, ends.next = ends, ends
	return &ring{max: limit, ends: ends, groups: map[groupKey]*group{}, texts: map[textKey]*record{}}
}

// add records one event.
func (r *ring) add(key groupKey, message string, annotations map[string]string, now time.Time) {
	g := r.group(key)
	same := r.texts[textKey{g, message}]
	var v verdict
	v, g.similar = decide(g.similar, same != nil, now)

	// Revisions follow the clock, so that they still increase after a restart that lost the last ones.
	r.rev = max(r.rev+1, uint64(now.UnixMicro()))
	switch {
	case v == repeat:
		r.touch(same, now)
	case v == combine && g.combined != nil:
		g.combined.message = combinedPrefix + message
		r.touch(g.combined, now)
	default:
		rec := &record{content: content{
			group: g, message: message, annotations: annotations, count: 1,
			seq: r.rev, rev: r.rev, first: now, last: now,
		}}
		if rec.combined = v == combine; rec.combined {
			rec.message = combinedPrefix + message
		} else {
			g.combined = nil // the quiet time before this message has ended the combining
		}
		r.insert(rec)
		r.evict()
	}
}

func (r *ring) group(key groupKey) *group {
	g := r.groups[key]
	if g == nil {
		g = &group{groupKey: key}
		r.groups[key] = g
	}
	return g
}

// touch counts another occurrence of rec and makes it the newest.
func (r *ring) touch(rec *record, now time.Time) {
	rec.count++
	rec.last = now
	rec.rev = r.rev
	rec.unlink()
	r.link(rec)
}

// insert makes rec the newest and adds it to the index.
func (r *ring) insert(rec *record) {
	r.link(rec)
	r.len++
	rec.group.live++
	if rec.combined {
		rec.group.combined = rec
		return
	}
	r.texts[textKey{rec.group, rec.message}] = rec
}

// evict removes the oldest records beyond max, and groups without records.
func (r *ring) evict() {
	for r.len > r.max {
		r.remove(r.ends.next)
	}
	if r.removed >= r.max {
		r.reindex()
	}
}

// reindex makes the maps again. A map of Go whose keys come and go splits its tables from time to time and never joins
// two of them: for tens of thousands of events it would grow although the number of records stays.
func (r *ring) reindex() {
	groups, texts := make(map[groupKey]*group, len(r.groups)), make(map[textKey]*record, len(r.texts))
	maps.Copy(groups, r.groups)
	maps.Copy(texts, r.texts)
	r.groups, r.texts, r.removed = groups, texts, 0
}

func (r *ring) remove(rec *record) {
	rec.unlink()
	r.len--
	r.removed++
	g := rec.group
	if rec.combined {
		if g.combined == rec {
			g.combined = nil
		}
	} else {
		delete(r.texts, textKey{g, rec.message})
	}
	if g.live--; g.live == 0 {
		delete(r.groups, g.groupKey)
	}
}

func (r *ring) link(rec *record) {
	rec.prev, rec.next = r.ends.prev, r.ends
	rec.prev.next, rec.next.prev = rec, rec
}

func (rec *record) unlink() {
	rec.prev.next, rec.next.prev = rec.next, rec.prev
}

// since returns copies of the records that changed after rev and match the filter, oldest change first.
func (r *ring) since(rev uint64, f Filter) []content {
	var found []content
	for rec := r.ends.prev; rec != r.ends && rec.rev > rev; rec = rec.prev {
		if f.match(rec.group) {
			found = append(found, rec.content)
		}
	}
	slices.Reverse(found)
	return found
}

// restore returns a ring with the events of the previous agent and the events of r. If both have an event, it adds up
// their counts.
func (r *ring) restore(old []content) *ring {
	all := slices.Concat(old, r.since(0, Filter{}))
	slices.SortStableFunc(all, func(a, b content) int { return cmp.Compare(a.rev, b.rev) })
	merged := newRing(r.max)
	for _, c := range all {
		merged.adopt(c)
	}
	merged.evict()
	return merged
}

// adopt adds an event that is newer than all events in the ring.
func (r *ring) adopt(c content) {
	r.rev = c.rev
	c.group = r.group(c.group.groupKey)
	if same := r.texts[textKey{c.group, c.message}]; same != nil && !c.combined {
		same.count += c.count
		same.rev, same.last = c.rev, c.last
		same.unlink()
		r.link(same)
	} else {
		if !c.combined {
			_, c.group.similar = decide(c.group.similar, false, c.first)
		}
		r.insert(&record{content: c})
	}
	c.group.similar.Last = c.last
}
