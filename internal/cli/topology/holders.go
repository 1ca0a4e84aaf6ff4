package topology

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/cli/printer"
)

func (d *drawing) holders(w io.Writer) error {
	if len(d.Holders) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	rows := printer.NewTable(w, "HOLDER", "POD", "CONTAINER", "CPUS", "MEMORY", "DEVICES")
	for i, h := range d.Holders {
		pod := h.Namespace + "/" + h.Pod
		if h.Pod == "" {
			pod = "(ended) " + string(h.UID)
		}
		var memory, devices []string
		for _, b := range h.Memory {
			memory = append(memory, memoryBlock(b))
		}
		for _, held := range h.Devices {
			devices = append(devices, string(held.Resource)+" "+plain(held.IDs))
		}
		rows.Row(string(letter(i)), pod, or(h.Container, "(pod)"), or(fold(h.CPUs), "-"),
			or(strings.Join(memory, ", "), "-"), or(strings.Join(devices, ", "), "-"))
	}
	return rows.Flush()
}

func memoryBlock(b api.MemoryBlock) string {
	nodes := make([]string, len(b.Nodes))
	for i, id := range b.Nodes {
		nodes[i] = strconv.Itoa(id)
	}
	return amount(b.Size, b.Resource) + " on node " + strings.Join(nodes, "+")
}

// amount returns a size of memory, or of huge pages with their name.
func amount(n int64, of corev1.ResourceName) string {
	if of == corev1.ResourceMemory {
		return size(n)
	}
	return size(n) + " of " + string(of)
}

// devices draws one line for the devices of a resource that are near the same nodes.
func (d *drawing) devices(w io.Writer) error {
	if len(d.Devices) == 0 {
		return nil
	}
	type line struct {
		resource, nodes     string
		free, held, defects []string
	}
	var lines []*line
	for _, dev := range d.Devices {
		nodes := make([]string, len(dev.Nodes))
		for i, id := range dev.Nodes {
			nodes[i] = strconv.Itoa(id)
		}
		at := line{resource: string(dev.Resource), nodes: or(strings.Join(nodes, "+"), "-")}
		i := slices.IndexFunc(lines, func(l *line) bool { return l.resource == at.resource && l.nodes == at.nodes })
		if i < 0 {
			i, lines = len(lines), append(lines, &at)
		}
		l := lines[i]
		switch {
		case dev.Holder != nil:
			l.held = append(l.held, dev.ID+"="+d.holderOf(dev.Holder))
		case dev.Healthy:
			l.free = append(l.free, dev.ID)
		}
		if !dev.Healthy {
			l.defects = append(l.defects, dev.ID)
		}
	}
	slices.SortStableFunc(lines, func(a, b *line) int {
		return cmp.Or(strings.Compare(a.resource, b.resource), strings.Compare(a.nodes, b.nodes))
	})
	fmt.Fprintln(w)
	rows := printer.NewTable(w, "DEVICES", "NODE", "FREE", "HELD", "UNHEALTHY")
	for _, l := range lines {
		rows.Row(l.resource, l.nodes, or(plain(l.free), "-"), or(plain(l.held), "-"), or(plain(l.defects), "-"))
	}
	return rows.Flush()
}

func (d *drawing) holderOf(who *api.Holder) string {
	i := slices.IndexFunc(d.Holders, func(h api.Holder) bool {
		return h.UID == who.UID && h.Container == who.Container
	})
	if i < 0 {
		return "?"
	}
	return string(letter(i))
}

// most is the largest number of devices that a cell names.
const most = 6

// plain joins device names. It quotes names with control characters, because plugins choose the names and
// the terminal must not interpret them.
func plain(ids []string) string {
	var out []string
	for _, id := range ids[:min(len(ids), most)] {
		if quoted := strconv.Quote(id); quoted != `"`+id+`"` {
			id = quoted
		}
		out = append(out, id)
	}
	if more := len(ids) - most; more > 0 {
		out = append(out, fmt.Sprintf("%d more", more))
	}
	return strings.Join(out, ",")
}

func or(text, empty string) string { return cmp.Or(text, empty) }

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// size returns a number of bytes as text, or "-" for 0, which means unknown.
func size(n int64) string {
	if n == 0 {
		return "-"
	}
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	value, unit := float64(n), 0
	for value >= 1024 && unit < len(units)-1 {
		value, unit = value/1024, unit+1
	}
	return strings.TrimSuffix(strconv.FormatFloat(value, 'f', 1, 64), ".0") + " " + units[unit]
}
