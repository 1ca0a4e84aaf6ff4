package topology

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/base/cpulist"
)

// row is one line of the drawing: the cores of one cache, several equal lines folded into one, or the
// caches of a level below the last.
type row struct {
	label  string // of the cache; empty if the line continues the one before
	caches int
	cpus   []int
	cells  string
	alike  rune // the sign that all CPUs share, or 0 if they differ
}

// places draws the cores, grouped by socket and node, then by cache.
func (d *drawing) places(w io.Writer) error {
	type place struct{ socket, node int }
	var order []place
	in := map[place][]core{}
	for _, c := range d.cores {
		at := place{c.Socket, c.Node}
		if in[at] == nil {
			order = append(order, at)
		}
		in[at] = append(in[at], c)
	}
	slices.SortFunc(order, func(a, b place) int {
		if a.socket != b.socket {
			return a.socket - b.socket
		}
		return a.node - b.node
	})
	rows := map[place][]row{}
	var label, cpus int // their widths
	for _, at := range order {
		rows[at] = append(d.lowerRows(in[at]), join(d.rows(in[at]))...)
		for _, r := range rows[at] {
			label, cpus = max(label, len(r.label)), max(cpus, len(r.list()))
		}
	}
	for _, at := range order {
		fmt.Fprintf(w, "\nsocket %d, node %d: %s, %s\n", at.socket, at.node, count(len(in[at]), "core"),
			count(len(cpusOf(in[at])), "CPU"))
		for _, r := range rows[at] {
			if _, err := fmt.Fprintf(w, "  %-*s   %-*s   %s\n", label, r.label, cpus, r.list(), r.cells); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r row) list() string { return fold(cpuset.New(r.cpus...).String()) }

// rows returns the lines of cores by cache. A cache with many cores has several lines.
func (d *drawing) rows(cores []core) []row {
	byCache := map[int][]core{}
	var order []int
	threads := 1
	for _, c := range cores {
		id := -1
		if cache, ok := d.cache[c.ID]; ok {
			id = cache.ID
		}
		if byCache[id] == nil {
			order = append(order, id)
		}
		byCache[id] = append(byCache[id], c)
		threads = max(threads, len(c.cpus))
	}
	var rows []row
	for _, id := range order {
		label := "no shared cache"
		if cache, ok := d.cache[byCache[id][0].ID]; ok {
			label = fmt.Sprintf("L%d %s", cache.Level, size(cache.Size))
		}
		for part := range slices.Chunk(byCache[id], max(32/threads, 1)) {
			rows = append(rows, d.row(label, part, threads))
			label = ""
		}
	}
	return rows
}

func (d *drawing) row(label string, cores []core, threads int) row {
	r := row{label: label, cpus: cpusOf(cores), alike: d.signs[cores[0].ID]}
	if label != "" {
		r.caches = 1
	}
	var cells strings.Builder
	for i, c := range cores {
		if i > 0 && (threads > 1 || i%8 == 0) {
			cells.WriteByte(' ')
		}
		for _, id := range c.cpus {
			sign := d.signs[id]
			cells.WriteRune(sign)
			if sign != r.alike {
				r.alike = 0
			}
		}
	}
	r.cells = cells.String()
	return r
}

// join folds consecutive equal rows.
func join(rows []row) []row {
	var joined []row
	for _, r := range rows {
		last := len(joined) - 1
		if last < 0 || r.alike == 0 || joined[last].alike != r.alike || r.label != "" && r.label != joined[last].label {
			joined = append(joined, r)
			continue
		}
		j := &joined[last]
		j.caches += r.caches
		j.cpus = append(j.cpus, r.cpus...)
		j.cells = "all " + meaning(r.alike)
	}
	for i, r := range joined {
		if r.caches > 1 {
			joined[i].label = fmt.Sprintf("%d x %s", r.caches, r.label)
		}
	}
	return joined
}

func meaning(sign rune) string {
	switch sign {
	case shared:
		return "shared"
	case reserved:
		return "reserved"
	}
	return string(sign)
}

func cpusOf(cores []core) []int {
	var ids []int
	for _, c := range cores {
		ids = append(ids, c.cpus...)
	}
	return ids
}

// fold shortens a list of CPUs in the notation of taskset(1): 0,2,4,6 becomes 0-6:2.
func fold(list string) string {
	set, err := cpulist.Set(list)
	if err != nil || utf8.RuneCountInString(list) <= 16 {
		return list
	}
	ids := set.List()
	var parts []string
	for len(ids) > 0 {
		step, n := 1, 1
		if len(ids) > 1 {
			step = ids[1] - ids[0]
		}
		for n < len(ids) && ids[n] == ids[n-1]+step {
			n++
		}
		switch {
		case n == 1 || step > 1 && n < 4:
			parts, ids = append(parts, fmt.Sprint(ids[0])), ids[1:]
			continue
		case step == 1:
			parts = append(parts, fmt.Sprintf("%d-%d", ids[0], ids[n-1]))
		default:
			parts = append(parts, fmt.Sprintf("%d-%d:%d", ids[0], ids[n-1], step))
		}
		ids = ids[n:]
	}
	return strings.Join(parts, ",")
}
