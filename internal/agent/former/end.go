package former

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/agent/engine"
	"github.com/berth-run/berth/internal/agent/engine/endpoint"
	"github.com/berth-run/berth/internal/config/embedded"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/steps/poddir"
)

// The agent starts after Leave, so both are short.
const (
	// mostGrace is the longest grace period of containers in a former runtime.
	mostGrace = 30 * time.Second
	// answerTime is how long a former runtime may take to answer.
	answerTime = 3 * time.Second
)

// Leave records that the agent uses the runtime at the endpoint current, and ends the pods of the root directory in all
// other runtimes. It runs no preStop handlers. Volumes and directories of the pods stay. Where pods may be left, Leave
// returns an error, and the next call tries again.
func Leave(ctx context.Context, o Options, current string) error {
	root := o.Config.RootDir
	before, err := load(root)
	after := append(others(before, current), current)
	if !slices.Equal(before, after) {
		if failed := save(root, after); failed != nil {
			return errors.Join(err, failed)
		}
	}
	kept := []string{current}
	for _, e := range others(after, current) {
		o.Log.Info("ending the pods in the container runtime that was used before", "endpoint", e)
		if failed := end(ctx, o, e, mostGrace); failed != nil {
			err, kept = errors.Join(err, failed), append(kept, e)
		}
	}
	if !slices.Equal(kept, after) {
		err = errors.Join(err, save(root, kept))
	}
	return err
}

// End ends the pods of the root directory, at once, in all runtimes that agents have used, apart from the one at the
// endpoint current.
func End(ctx context.Context, o Options, current string) error {
	all, err := load(o.Config.RootDir)
	for _, e := range others(all, current) {
		err = errors.Join(err, end(ctx, o, e, 0))
	}
	return err
}

// end ends the pods in the runtime at an endpoint.
func end(ctx context.Context, o Options, at string, grace time.Duration) error {
	config := *o.Config
	config.Runtime.Endpoint = at
	if at != endpoint.Embedded {
		config.Runtime.Embedded = embedded.Settings{} // a runtime in another process refuses them
	}
	o.Config = &config
	left, err := poddir.New(poddir.Config{Root: config.RootDir}).Orphans(func(types.UID) bool { return false })
	if err == nil {
		err = With(ctx, o, object.New(nil), answerTime, func(ctx context.Context, e *engine.Engine) error {
			_, err := Sandboxes(ctx, o, e, left, grace)
			return err
		})
	}
	if err != nil {
		return fmt.Errorf("end the pods in the container runtime that was used before (%s): %w; if it is gone for "+
			"good, delete %s", at, err, path(config.RootDir))
	}
	return nil
}
