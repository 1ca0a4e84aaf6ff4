package top

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/base/cpulist"
	"github.com/berth-run/berth/internal/base/retry"
	"github.com/berth-run/berth/internal/cli/command"
	"github.com/berth-run/berth/internal/cli/printer"
	"github.com/berth-run/berth/internal/cli/terminal"
)

// interval is the time over which CPU usage is measured, and between two pictures of -w.
const interval = time.Second

// Command returns "berth top".
func Command(a *command.App) *cobra.Command {
	f := podsFlags{sort: byCPU}
	f.All = true
	cmd := &cobra.Command{
		Use:   "top [node|pods]",
		Short: "Show what the node and its pods use now, beside what they requested",
		Long: `Show what the node and the pods of all namespaces use now. On a terminal the picture changes every
second, the keys c, m, s and n sort the pods by CPU, memory, stalls and name, and q ends. Otherwise it
is shown once. "berth top node" and "berth top pods" show one half of it, and say what the columns mean.`,
		Example: "  berth top\n  berth top --sort memory\n  berth top pods -w --containers",
		Args:    command.Usage(cobra.NoArgs),
	}
	f.addSort(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.check(); err != nil {
			return err
		}
		c := a.Client()
		node, err := newNode(cmd.Context(), c)
		if err != nil {
			return err
		}
		return show(cmd, c, interactive(cmd), f.sort, func(ctx context.Context, p picture, sort string) error {
			usage, err := client.Usage(ctx, c, false)
			if err != nil {
				return err
			}
			if err := node.draw(p, usage); err != nil {
				return err
			}
			if _, err := fmt.Fprintln(p.out); err != nil {
				return err
			}
			return f.draw(ctx, c, p, usage, sort)
		})
	}
	cmd.AddCommand(nodeCommand(a), podsCommand(a))
	return cmd
}

// node draws the usage of the node.
type node struct{ cpus int64 }

func newNode(ctx context.Context, c *client.Client) (node, error) {
	machine, err := client.Topology(ctx, c)
	if err != nil {
		return node{}, err
	}
	cpus, err := cpulist.Set(machine.CPUs)
	if err != nil {
		return node{}, client.Next(fmt.Errorf("read the agent's list of CPUs: %q is no list like 0-3,8", machine.CPUs),
			"use the same version of Berth as the agent")
	}
	return node{int64(cpus.Size())}, nil
}

func (n node) draw(p picture, usage *statsapi.Summary) error {
	t := p.table("RESOURCE", "USED", "OF", "SHARE", "STALLED")
	t.Style("SHARE", shareStyle)
	t.Style("STALLED", stallStyle)
	for _, r := range nodeRows(&usage.Node, n.cpus) {
		t.Row(r.resource, r.used, r.of, r.share, r.stall)
	}
	return t.Flush()
}

func nodeCommand(a *command.App) *cobra.Command {
	watch := false
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Show the usage of the node's CPU, memory, disks and processes",
		Long: `Show the usage of the node's CPU, memory, swap, disks and processes. CPU is measured for a second.
STALLED is the share of the last 10 s in which some program waited for that resource, if the kernel
measures it (pressure stall information).`,
		Example: "  berth top node",
		Args:    command.Usage(cobra.NoArgs),
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "measure again every second; on a terminal, q ends")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c := a.Client()
		node, err := newNode(cmd.Context(), c)
		if err != nil {
			return err
		}
		return show(cmd, c, watch, "", func(ctx context.Context, p picture, _ string) error {
			usage, err := client.Usage(ctx, c, false)
			if err != nil {
				return err
			}
			return node.draw(p, usage)
		})
	}
	return cmd
}

// podsFlags are the flags of "berth top pods".
type podsFlags struct {
	command.Scope
	labels, sort      string
	watch, containers bool
}

// addSort adds the flag --sort.
func (f *podsFlags) addSort(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.sort, "sort", byCPU, "`key` to sort by: "+strings.Join(keys(), ", "))
	command.Mark(cmd.RegisterFlagCompletionFunc("sort",
		cobra.FixedCompletions(keys(), cobra.ShellCompDirectiveNoFileComp)))
}

// check returns an error if the value of a flag is not known.
func (f *podsFlags) check() error {
	if !slices.Contains(keys(), f.sort) {
		return client.Next(fmt.Errorf("pods cannot be sorted by %q", f.sort), "use one of "+strings.Join(keys(), ", "))
	}
	return nil
}

func podsCommand(a *command.App) *cobra.Command {
	f := podsFlags{sort: byCPU}
	cmd := &cobra.Command{
		Use:     "pods",
		Aliases: []string{"pod", "po"},
		Short:   "Show what pods use now, with their requests and limits",
		Long: `Show what pods use now, with their requests and limits. CPU is measured for a second. STALLED is the
share of the last 10 s in which some process of the pod waited for CPU, memory or a disk; it needs
cgroup v2.

With -w on a terminal the keys c, m, s and n sort by CPU, memory, stalls and name, and q ends.`,
		Example: "  berth top pods -A --sort memory\n  berth top pods -w --containers",
		Args:    command.Usage(cobra.NoArgs),
	}
	f.AddAll(cmd)
	f.addSort(cmd)
	cmd.Flags().StringVarP(&f.labels, "selector", "l", "", "label `selector`, such as app=web")
	cmd.Flags().BoolVar(&f.containers, "containers", false, "a row for each container")
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "measure again every second")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.check(); err != nil {
			return err
		}
		c := a.Client()
		return show(cmd, c, f.watch, f.sort, func(ctx context.Context, p picture, sort string) error {
			usage, err := client.Usage(ctx, c, false)
			if err != nil {
				return err
			}
			return f.draw(ctx, c, p, usage, sort)
		})
	}
	return cmd
}

func keys() []string { return []string{byCPU, byMemory, byStall, byName} }

// draw writes the table of the pods.
func (f *podsFlags) draw(ctx context.Context, c *client.Client, p picture, usage *statsapi.Summary,
	sort string) error {
	pods, err := c.Pods(ctx, client.Select{Namespace: f.Selected(), Labels: f.labels})
	if err != nil {
		return err
	}
	rows := podRows(usage, pods.Items, f.containers)
	if len(rows) == 0 {
		_, err := fmt.Fprintln(p.out, "No pods run here.")
		return err
	}
	order(rows, sort)
	var head []string
	if f.All {
		head = append(head, "NAMESPACE")
	}
	head = append(head, "NAME")
	if f.containers {
		head = append(head, "CONTAINER")
	}
	t := p.table(append(head, "CPU", "REQUEST", "LIMIT", "MEMORY", "REQUEST", "LIMIT", "STALLED")...)
	t.Style("STALLED", stallStyle)
	for _, r := range rows {
		var cells []string
		if f.All {
			cells = append(cells, r.namespace)
		}
		cells = append(cells, r.pod)
		if f.containers {
			cells = append(cells, r.container)
		}
		cells = append(cells, r.cpu.cells(cores)...)
		cells = append(cells, r.memory.cells(printer.Size)...)
		t.Row(append(cells, r.waits())...)
	}
	return t.Flush()
}

// show begins the measurement of CPU usage, and draws what was used since then a while later. With watch it goes on
// until the user ends it.
func show(cmd *cobra.Command, c *client.Client, watch bool, sort string,
	draw func(ctx context.Context, p picture, sort string) error) error {
	ctx := cmd.Context()
	if _, err := client.Usage(ctx, c, true); err != nil {
		return err
	}
	if watch {
		return follow(cmd, sort, draw)
	}
	if err := retry.Sleep(ctx, interval); err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	return draw(ctx, picture{w, terminal.Of(w).Color}, sort)
}

// picture is where a command draws, and whether it has colors.
type picture struct {
	out   io.Writer
	color bool
}

func (p picture) table(columns ...string) *printer.Table {
	t := printer.NewTable(p.out, columns...)
	t.Color(p.color)
	return t
}
