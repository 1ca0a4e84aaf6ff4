package topology

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/cli/printer"
)

// The signs of CPUs. Each holder has a letter, in the order of the list. Holders after the last letter
// share the sign many.
const (
	shared   = '.'
	reserved = '#'
	letters  = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	many     = '*'
)

// Draw writes a machine as text.
func Draw(w io.Writer, t *api.Topology) error {
	d, err := newDrawing(t)
	if err != nil {
		return client.Next(fmt.Errorf("draw topology: %w", err), "use -o json, which shows what the agent reports")
	}
	for _, part := range []func(io.Writer) error{d.summary, d.nodes, d.places, d.holders, d.devices} {
		if err := part(w); err != nil {
			return err
		}
	}
	return nil
}

type drawing struct {
	*api.Topology
	signs map[int]rune // by CPU
	cores []core
	cache map[int]api.Cache // by CPU, of the last level
	lower []lowerCache
}

type core struct {
	api.Core
	cpus []int
}

func newDrawing(t *api.Topology) (*drawing, error) {
	d := &drawing{Topology: t, signs: map[int]rune{}, cache: map[int]api.Cache{}}
	var err error
	parse := func(list string) []int {
		set, bad := cpuset.Parse(list)
		if bad != nil && err == nil {
			err = fmt.Errorf("%q is no list of CPUs like 0-3,8", list)
		}
		return set.List()
	}
	for _, id := range parse(t.CPUs) {
		d.signs[id] = shared
	}
	for _, id := range parse(t.ReservedCPUs) {
		d.signs[id] = reserved
	}
	// Draw pods first, then containers, so that a container's own CPUs have the container's letter.
	for _, whole := range []bool{true, false} {
		for i, h := range t.Holders {
			if (h.Container == "") != whole {
				continue
			}
			for _, id := range parse(h.CPUs) {
				d.signs[id] = letter(i)
			}
		}
	}
	for _, c := range t.Caches {
		for _, id := range parse(c.CPUs) {
			d.cache[id] = c
		}
	}
	for _, c := range t.LowerCaches {
		d.lower = append(d.lower, lowerCache{c, parse(c.CPUs)})
	}
	for _, c := range t.Cores {
		d.cores = append(d.cores, core{c, parse(c.CPUs)})
	}
	return d, err
}

func letter(i int) rune {
	if i < len(letters) {
		return rune(letters[i])
	}
	return many
}

func (d *drawing) summary(w io.Writer) error {
	var total int64
	for _, n := range d.Nodes {
		total += n.Memory
	}
	threads := 0
	for _, c := range d.cores {
		threads = max(threads, len(c.cpus))
	}
	line := strings.Join([]string{count(len(d.Sockets), "socket"), count(len(d.Nodes), "NUMA node"),
		count(len(d.cores), "core"), count(len(d.signs), "CPU")}, ", ")
	if threads > 1 {
		line += fmt.Sprintf(" (up to %d a core)", threads)
	}
	if total > 0 {
		line += ", " + size(total) + " of memory"
	}
	fmt.Fprintln(w, line)
	fmt.Fprintf(w, "policies        CPUs %s, memory %s, topology %s (scope %s)\n", d.CPUPolicy, d.MemoryPolicy,
		d.TopologyPolicy, d.TopologyScope)
	for _, list := range []struct{ what, cpus string }{{"shared", d.SharedCPUs}, {"reserved", d.ReservedCPUs},
		{"offline", d.OfflineCPUs}} {
		if list.cpus != "" {
			fmt.Fprintf(w, "CPUs %-10s %s\n", list.what, fold(list.cpus))
		}
	}
	return nil
}

func (d *drawing) nodes(w io.Writer) error {
	columns := []string{"NODE", "SOCKET", "CPUS", "MEMORY", "HUGE PAGES", "RESERVED"}
	withDistances := len(d.Nodes) > 1 &&
		slices.ContainsFunc(d.Nodes, func(n api.NUMANode) bool { return len(n.Distances) > 0 })
	if withDistances {
		columns = append(columns, distanceTo+numbers(d.Nodes, func(n api.NUMANode) int { return n.ID }))
	}
	fmt.Fprintln(w)
	rows := printer.NewTable(w, columns...)
	for _, n := range d.Nodes {
		var pages []string
		for _, p := range n.HugePages {
			if p.Count > 0 {
				pages = append(pages, fmt.Sprintf("%d x %s", p.Count, size(p.Size)))
			}
		}
		var kept []string
		for _, r := range n.Reserved {
			kept = append(kept, amount(r.Size, r.Resource))
		}
		row := []string{strconv.Itoa(n.ID), d.socketsOf(n.ID), or(fold(n.CPUs), "-"), size(n.Memory),
			or(strings.Join(pages, ", "), "-"), or(strings.Join(kept, ", "), "-")}
		if withDistances {
			row = append(row, strings.Repeat(" ", len(distanceTo))+distances(d.Nodes, n))
		}
		rows.Row(row...)
	}
	return rows.Flush()
}

const distanceTo = "DISTANCE TO"

// distances returns the distances from a node to all nodes, in order. "-" stands for an unknown one.
func distances(all []api.NUMANode, from api.NUMANode) string {
	return numbers(all, func(to api.NUMANode) int {
		i := slices.IndexFunc(from.Distances, func(d api.Distance) bool { return d.Node == to.ID })
		if i < 0 {
			return -1
		}
		return from.Distances[i].Distance
	})
}

// numbers returns one column per node. A value of -1 is shown as "-".
func numbers(nodes []api.NUMANode, of func(api.NUMANode) int) string {
	var out strings.Builder
	for _, n := range nodes {
		text := "-"
		if of(n) >= 0 {
			text = strconv.Itoa(of(n))
		}
		fmt.Fprintf(&out, " %3s", text)
	}
	return out.String()
}

func (d *drawing) socketsOf(node int) string {
	var ids []int
	for _, c := range d.cores {
		if c.Node == node {
			ids = append(ids, c.Socket)
		}
	}
	return or(cpuset.New(ids...).String(), "-")
}
