package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/base/quantity"
	"github.com/berth-run/berth/internal/cli/command"
)

func resizeCommand(a *app) *cobra.Command {
	var (
		s                command.Scope
		container        string
		requests, limits string
	)
	cmd := &cobra.Command{
		Use:   "resize POD [-c CONTAINER] [--requests LIST] [--limits LIST]",
		Short: "Change the CPU and memory of a running container",
		Long: `Change the CPU and memory of a container. It keeps running, unless its resizePolicy is RestartContainer.
Resources that are not listed keep their values. If the node lacks the resources now, the resize waits
until they are free (condition PodResizePending).

A pod of the manifest directory can be resized too. The new values apply until its manifest lists other
resources.`,
		Example: "  berth resize web --requests cpu=200m --limits cpu=500m,memory=256Mi",
		Args:    command.Usage(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := s.Pod(args[0])
			if err != nil {
				return err
			}
			r := api.Resize{Container: container}
			if r.Resources.Requests, err = quantities("requests", requests); err != nil {
				return err
			}
			if r.Resources.Limits, err = quantities("limits", limits); err != nil {
				return err
			}
			if _, err := a.Client().Pod(key).Resize(cmd.Context(), r); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "pod/%s resize requested\n", key.Name)
			return err
		},
	}
	s.Add(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&container, "container", "c", "", "`container` (optional if the pod has only one)")
	flags.StringVar(&requests, "requests", "", "new requests, a `list` such as cpu=100m,memory=64Mi")
	flags.StringVar(&limits, "limits", "", "new limits, a `list` such as cpu=1,memory=256Mi")
	cmd.MarkFlagsOneRequired("requests", "limits")
	cmd.ValidArgsFunction = a.CompletePod(&s)
	command.Mark(cmd.RegisterFlagCompletionFunc("container", a.CompleteContainer(&s)))
	return cmd
}

// quantities parses a list such as cpu=100m,memory=64Mi.
func quantities(flag, list string) (corev1.ResourceList, error) {
	if list == "" {
		return nil, nil
	}
	all := corev1.ResourceList{}
	for part := range strings.SplitSeq(list, ",") {
		name, value, ok := strings.Cut(part, "=")
		q, err := quantity.Parse(value)
		if !ok || err != nil {
			return nil,
				client.Next(fmt.Errorf("--%s: %q is not an amount of a resource", flag, part),
					"write it like cpu=100m or memory=64Mi")
		}
		if _, twice := all[corev1.ResourceName(name)]; twice {
			return nil, client.Next(fmt.Errorf("--%s names %s twice", flag, name), "name each resource once")
		}
		all[corev1.ResourceName(name)] = q
	}
	return all, nil
}
