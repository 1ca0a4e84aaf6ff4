package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/cli/command"
)

func conditionCommand(a *app) *cobra.Command {
	var (
		s               command.Scope
		reason, message string
	)
	cmd := &cobra.Command{
		Use:   "condition POD TYPE=True|False|Unknown [--reason WORD] [--message TEXT]",
		Short: "Set a condition of a pod, for example one of its readiness gates",
		Long: `Set a pod condition that the agent does not compute itself. A pod with readinessGates is ready when its
containers are ready and each of the listed conditions is True. The condition stays until the pod is
deleted.`,
		Example: "  berth condition web example.com/in-load-balancer=True",
		Args:    command.Usage(cobra.ExactArgs(2)),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := s.Pod(args[0])
			if err != nil {
				return err
			}
			kind, status, ok := strings.Cut(args[1], "=")
			if !ok {
				return client.Next(fmt.Errorf("%q names no status", args[1]),
					"write it like example.com/in-load-balancer=True")
			}
			c := corev1.PodCondition{Type: corev1.PodConditionType(kind), Status: corev1.ConditionStatus(status),
				Reason: reason, Message: message}
			if _, err := a.Client().Pod(key).SetCondition(cmd.Context(), c); err != nil {
				return err
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "pod/%s condition %s set\n", key.Name, kind)
			return err
		},
	}
	s.Add(cmd)
	cmd.Flags().StringVar(&reason, "reason", "", "reason for the status, one `word` in CamelCase")
	cmd.Flags().StringVar(&message, "message", "", "reason for the status, as a `text` for people")
	cmd.ValidArgsFunction = a.CompletePod(&s)
	return cmd
}
