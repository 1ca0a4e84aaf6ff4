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
	"k8s.io/utils/cpuset"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/base/retry"
	"github.com/berth-run/berth/internal/cli/command"
	"github.com/berth-run/berth/internal/cli/printer"
)

// interval is the time over which CPU usage is measured, and between two pictures of -w.
const interval = time.Second

// Command returns "berth top".
func Command(a *command.App) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "top node|pods",
		Short:   "Show what the node or its pods use now, beside what they requested",
		Example: "  berth top pods -A --sort memory",
		Args:    command.Usage(cobra.NoArgs),
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(nodeCommand(a), podsCommand(a))
	return cmd
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
		machine, err := client.Topology(cmd.Context(), c)
		if err != nil {
			return err
		}
		cpus, err := cpuset.Parse(machine.CPUs)
		if err != nil {
			return fmt.Errorf("read the agent's list of CPUs: %w", err)
		}
		return show(cmd, c, watch, "", func(ctx context.Context, w io.Writer, _ string) error {
			usage, err := client.Usage(ctx, c, false)
			if err != nil {
				return err
			}
			t := printer.NewTable(w, "RESOURCE", "USED", "OF", "SHARE", "STALLED")
			for _, r := range nodeRows(&usage.Node, int64(cpus.Size())) {
				t.Row(r.resource, r.used, r.of, r.share, r.stall)
			}
			return t.Flush()
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
	cmd.Flags().StringVarP(&f.labels, "selector", "l", "", "label `selector`, such as app=web")
	cmd.Flags().StringVar(&f.sort, "sort", byCPU, "`key` to sort by: "+strings.Join(keys(), ", "))
	cmd.Flags().BoolVar(&f.containers, "containers", false, "a row for each container")
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "measure again every second")
	command.Mark(cmd.RegisterFlagCompletionFunc("sort",
		cobra.FixedCompletions(keys(), cobra.ShellCompDirectiveNoFileComp)))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !slices.Contains(keys(), f.sort) {
			return client.Next(fmt.Errorf("pods cannot be sorted by %q", f.sort),
				"use one of "+strings.Join(keys(), ", "))
		}
		c := a.Client()
		return show(cmd, c, f.watch, f.sort, func(ctx context.Context, w io.Writer, sort string) error {
			usage, err := client.Usage(ctx, c, false)
			if err != nil {
				return err
			}
			return f.draw(ctx, c, w, usage, sort)
		})
	}
	return cmd
}

func keys() []string { return []string{byCPU, byMemory, byStall, byName} }

// draw writes the table of the pods.
func (f *podsFlags) draw(ctx context.Context, c *client.Client, w io.Writer, usage *statsapi.Summary,
	sort string) error {
	pods, err := c.Pods(ctx, client.Select{Namespace: f.Selected(), Labels: f.labels})
	if err != nil {
		return err
	}
	rows := podRows(usage, pods.Items, f.containers)
	if len(rows) == 0 {
		_, err := fmt.Fprintln(w, "No pods run here.")
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
	t := printer.NewTable(w, append(head, "CPU", "REQUEST", "LIMIT", "MEMORY", "REQUEST", "LIMIT", "STALLED")...)
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
	draw func(ctx context.Context, w io.Writer, sort string) error) error {
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
	return draw(ctx, cmd.OutOrStdout(), sort)
}
