package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/client"
)

type deleteFlags struct {
	scope
	files   []string
	grace   int
	wait    bool
	missing bool // a pod that is not there is no error
	timeout time.Duration
}

func deleteCommand(a *app) *cobra.Command {
	var f deleteFlags
	cmd := &cobra.Command{
		Use:     "delete pod NAME... | -f FILE",
		Short:   "End pods within their grace, and wait until they are gone",
		Example: "  berth delete pod web --grace-period 5",
		RunE: func(cmd *cobra.Command, args []string) error {
			keys, err := f.pods(cmd, a.client(), args)
			if err != nil {
				return err
			}
			return a.deletePods(cmd, &f, keys)
		},
	}
	f.add(cmd)
	cmd.Flags().StringArrayVarP(&f.files, "filename", "f", nil, "`file` of manifests whose pods to delete, - for standard input; may be repeated")
	cmd.Flags().IntVar(&f.grace, "grace-period", -1, "`seconds` the containers get to end; -1: the pod's own, 0: kill them at once")
	cmd.Flags().BoolVar(&f.wait, "wait", true, "wait until the pods are gone")
	cmd.Flags().BoolVar(&f.missing, "ignore-not-found", false, "a pod that does not exist is no error")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 0, "how long to wait, such as 30s; 0: for ever")
	mark(cmd.MarkFlagFilename("filename", "yaml", "yml", "json"))
	cmd.ValidArgsFunction = a.completeTyped(&f.scope)
	return cmd
}

// pods are the pods that the command line names.
func (f *deleteFlags) pods(cmd *cobra.Command, c *client.Client, args []string) ([]types.NamespacedName, error) {
	names := podArguments(args)
	if (len(names) == 0) == (len(f.files) == 0) {
		return nil, client.Next(errors.New("name the pods to delete"), "usage: "+cmd.UseLine())
	}
	if f.grace < -1 {
		return nil, client.Next(fmt.Errorf("--grace-period %d is negative", f.grace), "give seconds, or -1 for the pod's own")
	}
	var keys []types.NamespacedName
	for _, name := range names {
		key, err := f.pod(name)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	manifests, err := readManifests(cmd, f.files)
	if err != nil {
		return nil, err
	}
	for _, m := range manifests {
		// The agent reads manifests; a dry run tells whose they are.
		results, err := c.Apply(cmd.Context(), m.data, client.Apply{Namespace: f.explicit(cmd), Origin: m.origin, DryRun: true})
		if err != nil {
			return nil, err
		}
		for _, r := range results {
			keys = append(keys, r.Key())
		}
	}
	return keys, nil
}

func (a *app) deletePods(cmd *cobra.Command, f *deleteFlags, keys []types.NamespacedName) error {
	ctx := cmd.Context()
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, f.timeout, fmt.Errorf("pods are not gone after %s", f.timeout))
		defer cancel()
	}
	var grace *time.Duration
	if f.grace >= 0 {
		d := time.Duration(f.grace) * time.Second
		grace = &d
	}
	c := a.client()
	var failed []error
	going := map[types.UID]bool{}
	for _, key := range keys {
		p, err := c.Delete(ctx, key, "", grace)
		switch {
		case err == nil:
			going[p.UID] = true
			fmt.Fprintf(cmd.OutOrStdout(), "pod/%s deleted\n", key.Name)
		case !f.missing || !apierrors.IsNotFound(err):
			failed = append(failed, err)
		}
	}
	if f.wait {
		if err := waitGone(ctx, c, going); err != nil {
			failed = append(failed, err)
		}
	}
	return all(cmd.ErrOrStderr(), failed)
}

// waitGone returns when none of the pods is there any more.
func waitGone(ctx context.Context, c *client.Client, going map[types.UID]bool) error {
	if len(going) == 0 {
		return nil
	}
	there := map[types.UID]bool{}
	listed := false
	for change, err := range c.WatchPods(ctx, client.Select{}) {
		if err != nil {
			return err
		}
		switch {
		case change.Synced:
			listed = true
		case change.Deleted:
			delete(there, change.Object.UID)
		default:
			there[change.Object.UID] = true
		}
		if listed && !anyOf(going, there) {
			return nil
		}
	}
	return context.Cause(ctx)
}

func anyOf(a, b map[types.UID]bool) bool {
	for k := range a {
		if b[k] {
			return true
		}
	}
	return false
}
