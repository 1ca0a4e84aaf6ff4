package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/cli/command"
	"github.com/berth-run/berth/internal/cli/objects"
	"github.com/berth-run/berth/internal/model/object"
)

type deleteFlags struct {
	command.Scope
	files   []string
	grace   int
	wait    bool
	missing bool // a missing object is not an error
	timeout time.Duration
}

func deleteCommand(a *app) *cobra.Command {
	var f deleteFlags
	cmd := &cobra.Command{
		Use:   "delete pod NAME... | KIND NAME... | -f FILE",
		Short: "Delete pods and wait until they are gone, or delete other objects",
		Long: "Stop pods within their grace period and wait until they are gone. Applied ConfigMaps, Secrets,\n" +
			"claims, volumes and RuntimeClasses can be deleted too. Running containers keep the content they were\n" +
			"started with.",
		Example: "  berth delete pod web --grace-period 5",
		RunE: func(cmd *cobra.Command, args []string) error {
			if others, ok := objects.Arguments(f.Namespace, args); ok && len(f.files) == 0 {
				return errors.Join(objects.Delete(cmd, a.Client(), others, f.missing)...)
			}
			keys, others, err := f.named(cmd, a.Client(), args)
			if err != nil {
				return err
			}
			failed := a.deletePods(cmd, &f, keys)
			return errors.Join(append(failed, objects.Delete(cmd, a.Client(), others, f.missing)...)...)
		},
	}
	f.Add(cmd)
	cmd.Flags().StringArrayVarP(&f.files, "filename", "f", nil,
		"`file` with manifests of the pods and objects to delete, or - for standard input; may be repeated")
	cmd.Flags().IntVar(&f.grace, "grace-period", -1,
		"`seconds` that the containers get to end; -1: the pod's own grace period, 0: kill them at once")
	cmd.Flags().BoolVar(&f.wait, "wait", true, "wait until the pods are gone")
	cmd.Flags().BoolVar(&f.missing, "ignore-not-found", false, "ignore pods and objects that do not exist")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 0, "longest `duration` to wait, such as 30s; 0: no limit")
	command.Mark(cmd.MarkFlagFilename("filename", "yaml", "yml", "json"))
	cmd.ValidArgsFunction = a.CompleteTyped(&f.Scope, true, append([]string{"pod"}, objects.Words()...)...)
	return cmd
}

// named returns the pods that the command line names, and the other objects in its files.
func (f *deleteFlags) named(cmd *cobra.Command, c *client.Client, args []string) (keys []types.NamespacedName,
	others []object.Key, err error) {
	names := command.PodArguments(args)
	if (len(names) == 0) == (len(f.files) == 0) {
		return nil, nil, client.Next(errors.New("no pod, object or file is named"), "usage: "+cmd.UseLine())
	}
	if f.grace < -1 {
		return nil, nil,
			client.Next(fmt.Errorf("--grace-period %d is negative", f.grace), "give seconds, or -1 for the pod's own")
	}
	for _, name := range names {
		key, err := f.Pod(name)
		if err != nil {
			return nil, nil, err
		}
		keys = append(keys, key)
	}
	manifests, err := command.ReadManifests(cmd, f.files)
	if err != nil {
		return nil, nil, err
	}
	for _, m := range manifests {
		// The agent parses the manifests and returns the names in them.
		results, err := c.Apply(cmd.Context(), m.Data,
			client.Apply{Namespace: f.Explicit(cmd), Origin: m.Origin, Names: true})
		if err != nil {
			return nil, nil, err
		}
		for _, r := range results {
			if r.IsPod() {
				keys = append(keys, r.Key())
			} else {
				others = append(others, object.Key{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name})
			}
		}
	}
	return keys, others, nil
}

func (a *app) deletePods(cmd *cobra.Command, f *deleteFlags, keys []types.NamespacedName) (failed []error) {
	ctx := cmd.Context()
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, f.timeout, errLate)
		defer cancel()
	}
	var grace *time.Duration
	if f.grace >= 0 {
		d := time.Duration(f.grace) * time.Second
		grace = &d
	}
	c := a.Client()
	going := map[types.UID]types.NamespacedName{}
	for i, key := range keys {
		p, err := c.Pod(key).Delete(ctx, "", grace)
		if err != nil && errors.Is(context.Cause(ctx), errLate) {
			failed = append(failed, client.Next(
				fmt.Errorf("no answer from the agent within %s: nothing is known of %s", f.timeout, podNames(keys[i:])),
				"see the agent's log for what it waits for, or give a longer --timeout"))
			break
		}
		switch {
		case err == nil:
			going[p.UID] = key
			fmt.Fprintf(cmd.OutOrStdout(), "pod/%s deleted\n", key.Name)
		case !f.missing || !apierrors.IsNotFound(err):
			failed = append(failed, err)
		}
	}
	if f.wait {
		err := waitGone(ctx, c, going)
		if errors.Is(err, errLate) {
			err = client.Next(fmt.Errorf("not gone after %s: %s", f.timeout,
				podNames(slices.Collect(maps.Values(going)))),
				`see "berth describe pod" for what still runs, wait again with a longer --timeout, or kill it with `+
					"--grace-period 0")
		}
		if err != nil {
			failed = append(failed, err)
		}
	}
	return failed
}

// errLate ends a wait after --timeout.
var errLate = errors.New("--timeout has passed")

// podNames lists pods in the order of their names.
func podNames(keys []types.NamespacedName) string {
	var names []string
	for _, key := range keys {
		names = append(names, key.String())
	}
	slices.Sort(names)
	if len(names) == 1 {
		return "pod " + names[0]
	}
	return "pods " + strings.Join(names, ", ")
}

// waitGone returns when none of the pods exists any more. It removes the pods from going that it has seen go.
func waitGone(ctx context.Context, c *client.Client, going map[types.UID]types.NamespacedName) error {
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
		if listed {
			maps.DeleteFunc(going, func(uid types.UID, _ types.NamespacedName) bool { return !there[uid] })
		}
		if len(going) == 0 {
			return nil
		}
	}
	return context.Cause(ctx)
}
