package joined

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/berth-run/berth/bench/plot"
)

// Lines are the lines of the report, or none without a result.
func (m Many) Lines() []string {
	if len(m.Berth) == 0 {
		return nil
	}
	lines := []string{
		fmt.Sprintf("\n## Many agents in one process, each with %d pods on a fake runtime, idle for %.0f s\n", m.Pods,
			m.Seconds),
		"CPU and memory of Berth include the fake runtimes, and are without what the process had before. Memory is " +
			"what no file backs. [nodes.html](nodes.html) draws them beside as many kubelets.\n",
		"| agents | requests a minute and node | CPU a node, % of a core | memory a node, MB |",
		"|---|---|---|---|",
	}
	for _, r := range m.Berth {
		lines = append(lines, m.line(fmt.Sprint(r.Nodes), r))
	}
	return append(lines, m.line("one kubelet, in its own process", m.Kubelet))
}

func (m Many) line(what string, r ManyRow) string {
	n := float64(r.Nodes)
	return fmt.Sprintf("| %s | %.1f | %.3f | %.1f |", what, m.aMinute(r)/n, r.CPU/n, r.Private/n)
}

// aMinute is the number of requests of all nodes of a row in a minute.
func (m Many) aMinute(r ManyRow) float64 {
	all := 0
	for _, n := range r.Requests {
		all += n
	}
	return float64(all) / m.Seconds * 60
}

// Write writes nodes.html, which draws the result, if there is one. The line for kubelets is the measurement of one
// kubelet, times the number of nodes.
func (m Many) Write(dir string) error {
	if len(m.Berth) == 0 {
		return nil
	}
	t := plot.Table{Columns: []string{"nodes", "requests a minute", "CPU (% of a core)", "memory (MB)"},
		Against: []float64{0, m.aMinute(m.Kubelet), m.Kubelet.CPU, m.Kubelet.Private}}
	for _, r := range m.Berth {
		t.Rows = append(t.Rows, []float64{float64(r.Nodes), m.aMinute(r), r.CPU, r.Private})
	}
	html, err := t.HTML("Many nodes", fmt.Sprintf("Agents in one process, each with %d pods on a fake runtime, while "+
		"nothing happens. The solid blue line is Berth, with the fake runtimes; the dashed line is fitted to it. The "+
		"green line is one kubelet, times the number of nodes.", m.Pods))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "nodes.html"), []byte(html), 0o644)
}
