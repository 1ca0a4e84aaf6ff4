package top

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berth-run/berth/internal/cli/printer"
	"github.com/berth-run/berth/internal/cli/terminal"
)

// The keys that rows may be sorted by.
const (
	byCPU    = "cpu"
	byMemory = "memory"
	byStall  = "stall"
	byName   = "name"
)

// row is the usage of a pod or a container. CPU is in billionths of a core, memory in bytes. A limit of 0 is none.
type row struct {
	namespace, pod, container string
	cpu, memory               amount
	// stall is the share of the last 10 s in which some of its processes waited for CPU, memory or a disk, each between
	// 0 and 100. It is nil if the kernel does not measure it.
	stall *[3]float64
}

type amount struct {
	known                bool
	used, request, limit int64
}

// podRows returns a row for each pod, or for each container, that is in both lists.
func podRows(usage *statsapi.Summary, pods []corev1.Pod, perContainer bool) (rows []row) {
	used := map[string]statsapi.PodStats{}
	for _, p := range usage.Pods {
		used[p.PodRef.UID] = p
	}
	for _, p := range pods {
		s, ok := used[string(p.UID)]
		if !ok {
			continue
		}
		if !perContainer {
			options := resourcehelper.PodResourcesOptions{}
			one := row{namespace: p.Namespace, pod: p.Name, stall: stalls(s.CPU, s.Memory, s.IO)}
			one.cpu, one.memory = amounts(s.CPU, s.Memory, resourcehelper.PodRequests(&p, options),
				resourcehelper.PodLimits(&p, options))
			rows = append(rows, one)
			continue
		}
		for _, c := range s.Containers {
			resources := resourcesOf(&p, c.Name)
			one := row{namespace: p.Namespace, pod: p.Name, container: c.Name, stall: stalls(c.CPU, c.Memory, c.IO)}
			one.cpu, one.memory = amounts(c.CPU, c.Memory, resources.Requests, resources.Limits)
			rows = append(rows, one)
		}
	}
	return rows
}

func resourcesOf(p *corev1.Pod, container string) corev1.ResourceRequirements {
	for _, c := range slices.Concat(p.Spec.Containers, p.Spec.InitContainers) {
		if c.Name == container {
			return c.Resources
		}
	}
	return corev1.ResourceRequirements{}
}

func amounts(cpu *statsapi.CPUStats, memory *statsapi.MemoryStats, requests, limits corev1.ResourceList) (c, m amount) {
	c = amount{request: requests.Cpu().MilliValue() * 1e6, limit: limits.Cpu().MilliValue() * 1e6}
	if cpu != nil && cpu.UsageNanoCores != nil {
		c.known, c.used = true, int64(*cpu.UsageNanoCores)
	}
	m = amount{request: requests.Memory().Value(), limit: limits.Memory().Value()}
	if memory != nil && memory.WorkingSetBytes != nil {
		m.known, m.used = true, int64(*memory.WorkingSetBytes)
	}
	return c, m
}

// stalls returns the pressure stall information of a cgroup, or nil if the kernel has none.
func stalls(cpu *statsapi.CPUStats, memory *statsapi.MemoryStats, io *statsapi.IOStats) *[3]float64 {
	var all [3]*statsapi.PSIStats
	if cpu != nil {
		all[0] = cpu.PSI
	}
	if memory != nil {
		all[1] = memory.PSI
	}
	if io != nil {
		all[2] = io.PSI
	}
	var shares [3]float64
	known := false
	for i, psi := range all {
		if psi != nil {
			known, shares[i] = true, psi.Some.Avg10
		}
	}
	if !known {
		return nil
	}
	return &shares
}

// order sorts rows: the one that uses most comes first, equal ones by name.
func order(rows []row, key string) {
	slices.SortFunc(rows, func(a, b row) int {
		names := cmp.Or(strings.Compare(a.namespace, b.namespace), strings.Compare(a.pod, b.pod),
			strings.Compare(a.container, b.container))
		switch key {
		case byCPU:
			return cmp.Or(cmp.Compare(b.cpu.used, a.cpu.used), names)
		case byMemory:
			return cmp.Or(cmp.Compare(b.memory.used, a.memory.used), names)
		case byStall:
			return cmp.Or(cmp.Compare(b.stalled(), a.stalled()), names)
		default:
			return names
		}
	})
}

// stalled is the largest share of a row's stalls.
func (r row) stalled() float64 {
	if r.stall == nil {
		return 0
	}
	return slices.Max(r.stall[:])
}

// cells returns used, request and limit.
func (a amount) cells(text func(int64) string) []string {
	of := func(v int64) string {
		if v == 0 {
			return "-"
		}
		return text(v)
	}
	if !a.known {
		return []string{"?", of(a.request), of(a.limit)}
	}
	return []string{text(a.used), of(a.request), of(a.limit)}
}

// cores writes billionths of a core as thousandths, as quantities do.
func cores(v int64) string { return fmt.Sprintf("%dm", int64(math.Round(float64(v)/1e6))) }

// waits writes the stalls of a row.
func (r row) waits() string {
	if r.stall == nil {
		return "-"
	}
	var parts []string
	for i, what := range []string{"cpu", "memory", "disk"} {
		if share := r.stall[i]; share >= 0.5 {
			parts = append(parts, fmt.Sprintf("%s %.0f%%", what, share))
		}
	}
	if len(parts) == 0 {
		return "0%"
	}
	return strings.Join(parts, " ")
}

// nodeRow is the use of one resource of the node.
type nodeRow struct{ resource, used, of, share, stall string }

// nodeRows returns the resources of the node that the usage has. cpus is how many CPUs it has.
func nodeRows(n *statsapi.NodeStats, cpus int64) (rows []nodeRow) {
	shares := stalls(n.CPU, n.Memory, n.IO)
	stall := func(i int) string {
		if shares == nil {
			return "-"
		}
		return fmt.Sprintf("%.0f%%", shares[i])
	}
	add := func(resource string, used, of *uint64, text func(int64) string, stall string) {
		if used == nil || of == nil {
			return
		}
		share := "-"
		if *of > 0 {
			share = fmt.Sprintf("%.0f%%", 100*float64(*used)/float64(*of))
		}
		rows = append(rows, nodeRow{resource, text(int64(*used)), text(int64(*of)), share, stall})
	}
	if n.CPU != nil {
		add("cpu", n.CPU.UsageNanoCores, new(uint64(cpus)*1e9), cores, stall(0))
	}
	if m := n.Memory; m != nil && m.WorkingSetBytes != nil && m.AvailableBytes != nil {
		add("memory", m.WorkingSetBytes, new(*m.WorkingSetBytes+*m.AvailableBytes), printer.Size, stall(1))
	}
	if s := n.Swap; s != nil && s.SwapUsageBytes != nil && s.SwapAvailableBytes != nil {
		add("swap", s.SwapUsageBytes, new(*s.SwapUsageBytes+*s.SwapAvailableBytes), printer.Size, "")
	}
	disk := func(name string, f *statsapi.FsStats, stall string) {
		if f == nil || f.CapacityBytes == nil || f.AvailableBytes == nil {
			return
		}
		add(name, new(*f.CapacityBytes-*f.AvailableBytes), f.CapacityBytes, printer.Size, stall)
		if f.Inodes != nil && f.InodesFree != nil {
			add(name+" inodes", new(*f.Inodes-*f.InodesFree), f.Inodes, plain, "")
		}
	}
	disk("disk", n.Fs, stall(2))
	if n.Runtime != nil && n.Runtime.ImageFs != nil {
		disk("disk of images", n.Runtime.ImageFs, "")
	}
	if r := n.Rlimit; r != nil && r.NumOfRunningProcesses != nil && r.MaxPID != nil {
		add("processes", new(uint64(*r.NumOfRunningProcesses)), new(uint64(*r.MaxPID)), plain, "")
	}
	return rows
}

func plain(v int64) string { return strconv.FormatInt(v, 10) }

// shareStyle returns the style of a share of a resource in percent: most of it is used, or almost all.
func shareStyle(share string, _ []string) terminal.Style { return levelStyle(share, 80, 95) }

// stallStyle returns the style of stalls: some time is lost, or much.
func stallStyle(stalls string, _ []string) terminal.Style { return levelStyle(stalls, 10, 40) }

// levelStyle returns the style of a text by the highest number of percent in it.
func levelStyle(text string, attention, bad int) terminal.Style {
	highest := 0
	for part := range strings.FieldsSeq(text) {
		if number, ok := strings.CutSuffix(part, "%"); ok {
			if n, err := strconv.Atoi(number); err == nil {
				highest = max(highest, n)
			}
		}
	}
	switch {
	case highest >= bad:
		return terminal.Bad
	case highest >= attention:
		return terminal.Waiting
	}
	return ""
}
