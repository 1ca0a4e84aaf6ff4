package kind

import (
	"context"
	"fmt"
	"io"

	"github.com/berth-run/berth/internal/agent/engine"
	"github.com/berth-run/berth/internal/agent/engine/endpoint"
	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/runtime"
	"github.com/berth-run/berth/internal/runtime/network"
)

// socket is a runtime in another process, such as containerd or CRI-O, behind a CRI socket.
type socket struct {
	choice endpoint.Choice
	config *config.Config
}

// Connect implements Runtime. The runtime may come up later than the agent.
func (s socket) Connect(_ context.Context, _ engine.Launch, o cri.Options) (*cri.Client, error) {
	if flag := s.config.Runtime.Embedded.Given(); flag != "" {
		return nil, fmt.Errorf("%s is about the embedded runtime, but the runtime is %s (%s): leave it out, or "+
			"write containerRuntimeEndpoint: %s into the file of --config", flag, s.choice.Endpoint, s.choice.Reason,
			config.EmbeddedRuntime)
	}
	return cri.New(s.choice.Endpoint, o)
}

// Import implements Runtime.
func (s socket) Import(ctx context.Context, archive io.Reader) ([]string, error) {
	loaded, err := runtime.ImportInto(ctx, s.choice.Endpoint, archive)
	return names(loaded), notOverCRI(err)
}

// Export implements Runtime.
func (s socket) Export(ctx context.Context, archive io.Writer, names ...string) error {
	return notOverCRI(runtime.ExportFrom(ctx, s.choice.Endpoint, archive, names...))
}

// notOverCRI adds to an error what a user can do if the runtime cannot read and write archives.
func notOverCRI(err error) error {
	if err == nil {
		return nil
	}
	return answer.Next(err,
		"the CRI has no call for archives, so that only a containerd takes and gives them here: use the runtime's "+
			"own tool, or a registry")
}

// Progress implements Runtime: the CRI has no call for it.
func (socket) Progress() engine.Progress { return nil }

// Layers implements Runtime: the runtime measures them itself.
func (socket) Layers() engine.Layers { return nil }

// Overlaps implements Runtime: the network of pods belongs to the runtime.
func (socket) Overlaps() *network.Overlaps { return nil }

// RemoveNetwork implements Runtime: the network of pods belongs to the runtime.
func (socket) RemoveNetwork(context.Context) error { return nil }
