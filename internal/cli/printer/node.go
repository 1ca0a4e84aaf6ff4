package printer

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/cli/terminal"
)

// DescribeNode writes a description of the agent's node for people: its conditions, and how far it is from evicting
// pods.
func DescribeNode(w io.Writer, s *api.Status, p *api.Pressure, events []corev1.Event, now time.Time) error {
	d := &describer{color: terminal.Of(w).Color}
	d.line(0, "Name", "%s", s.Node)
	d.line(0, "Root", "%s", s.Root)
	d.line(0, "Agent", "berth %s, process %d, started %s", s.Version.Version, s.PID, s.StartedAt.Format(time.RFC1123Z))
	runtime := strings.TrimSpace(s.Runtime.Name + " " + s.Runtime.Version)
	if s.Runtime.Endpoint != "" {
		runtime += " at " + s.Runtime.Endpoint
	}
	d.line(0, "Runtime", "%s", runtime)
	if s.Runtime.CgroupDriver != "" {
		d.line(0, "Cgroup driver", "%s", s.Runtime.CgroupDriver)
	}
	if handlers := named(s.Runtime.Handlers); len(handlers) > 0 {
		d.head(0, "Runtime handlers")
		d.handlers(handlers, s.Runtime.HandlerPrograms)
	}
	d.head(0, "Conditions")
	conditions := d.table("  Type", "Status", "Reason", "Message")
	conditions.Style("Status", func(status string, row []string) terminal.Style {
		return nodeConditionStyle(corev1.NodeConditionType(strings.TrimSpace(row[0])), corev1.ConditionStatus(status))
	})
	for _, c := range s.Conditions {
		conditions.Row("  "+string(c.Type), string(c.Status), c.Reason, c.Message)
	}
	_ = conditions.Flush() // a strings.Builder takes everything
	d.head(0, "Eviction")
	if len(p.Signals) == 0 && p.Problem == "" {
		fmt.Fprintln(&d.out, "  no thresholds")
	}
	var table strings.Builder
	_ = signals(&table, p, d.color) // a strings.Builder takes everything
	for line := range strings.Lines(table.String()) {
		d.out.WriteString("  " + line)
	}
	d.events(events, now)
	_, err := io.WriteString(w, d.out.String())
	return err
}

// handlers writes a table of runtime handlers. An external runtime does not say which programs they run.
func (d *describer) handlers(handlers []corev1.NodeRuntimeHandler, programs []api.HandlerProgram) {
	columns := []string{"  Name", "UserNamespaces", "RecursiveReadOnlyMounts"}
	if len(programs) > 0 {
		columns = append(columns, "CgroupDriver", "Program", "Options")
	}
	table := d.table(columns...)
	for _, h := range handlers {
		users, mounts := "unknown", "unknown"
		if h.Features != nil {
			users, mounts = answer(h.Features.UserNamespaces), answer(h.Features.RecursiveReadOnlyMounts)
		}
		row := []string{"  " + h.Name, users, mounts}
		at := slices.IndexFunc(programs, func(p api.HandlerProgram) bool { return p.Name == h.Name })
		if at >= 0 {
			p := programs[at]
			row = append(row, cmp.Or(p.CgroupDriver, "its own"), p.Program, cmp.Or(strings.Join(p.Options, " "), "-"))
		}
		table.Row(row...)
	}
	_ = table.Flush() // a strings.Builder takes everything
}

// named returns the handlers that RuntimeClasses can name. The default handler is listed a second time without a name.
func named(all []corev1.NodeRuntimeHandler) []corev1.NodeRuntimeHandler {
	var handlers []corev1.NodeRuntimeHandler
	for _, h := range all {
		if h.Name != "" {
			handlers = append(handlers, h)
		}
	}
	return handlers
}

func answer(yes *bool) string {
	if yes != nil && *yes {
		return "yes"
	}
	return "no"
}
