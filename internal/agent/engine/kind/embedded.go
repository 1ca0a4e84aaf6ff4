package kind

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"go.opentelemetry.io/otel/trace"

	"github.com/berth-run/berth/internal/agent/engine"
	"github.com/berth-run/berth/internal/config"
	inprocess "github.com/berth-run/berth/internal/config/embedded"
	"github.com/berth-run/berth/internal/cri"
	"github.com/berth-run/berth/internal/runtime"
	"github.com/berth-run/berth/internal/runtime/handler"
)

// embedded is the runtime in this process: containerd as a library.
type embedded struct {
	*runtime.Runtime // Export, PullProgress, LayerUsage, FreeLayers, Overlaps and RemoveNetwork
	config           *config.Config
}

func newEmbedded(c *config.Config, tracer trace.TracerProvider, log *slog.Logger) embedded {
	rc := RuntimeConfig(c, log)
	rc.Tracer = tracer
	return embedded{runtime.New(rc), c}
}

// Connect implements Runtime: it starts the runtime, and serves it to other processes if the configuration says so.
func (e embedded) Connect(ctx context.Context, launch engine.Launch, o cri.Options) (*cri.Client, error) {
	launch(e.Run)
	conn, err := e.Conn(ctx)
	if err != nil {
		return nil, err
	}
	client, err := cri.NewFromConn("the embedded runtime", conn, o)
	if err != nil || e.config.Runtime.Embedded.CRIListen == "" {
		return client, err
	}
	listener, err := runtime.Listen(e.config.Runtime.Embedded.CRIListen)
	if err != nil {
		return nil, err
	}
	launch(func(ctx context.Context) error { return e.Serve(ctx, listener) })
	return client, nil
}

// Import implements Runtime.
func (e embedded) Import(ctx context.Context, archive io.Reader) ([]string, error) {
	loaded, err := e.Runtime.Import(ctx, archive)
	return names(loaded), err
}

// names returns the names of images.
func names(images []runtime.Image) (names []string) {
	for _, i := range images {
		names = append(names, i.Name)
	}
	return names
}

// Progress implements Runtime.
func (e embedded) Progress() engine.Progress { return e }

// Layers implements Runtime.
func (e embedded) Layers() engine.Layers { return e }

// RuntimeConfig returns the configuration of the embedded runtime of an agent. Each root directory has a runtime with
// its own directories, bridge and network.
func RuntimeConfig(c *config.Config, log *slog.Logger) runtime.Config {
	nri, on := c.Runtime.Embedded.NRI(c.HasDefaultRoot())
	rc := runtime.Config{
		Root:          filepath.Join(c.RootDir, "runtime"),
		State:         filepath.Join(c.RunDir, "runtime"),
		Owner:         c.RootDir,
		PodCIDRs:      c.Runtime.PodCIDRs,
		CNIConfDir:    c.Runtime.Embedded.CNIConfDir,
		NRISocket:     nri,
		NRIOff:        !on,
		CNIOnly:       c.Runtime.Embedded.PodNetwork == inprocess.NetworkCNI,
		SystemdCgroup: c.Runtime.CgroupDriver == "systemd",
		Handlers:      handlersOf(c.Runtime.Embedded.Handlers),
		RegistryDir:   registryDir(c.RootDir),
		LogMaxSize:    c.Pods.Logs.MaxSize,
		LogMaxFiles:   c.Pods.Logs.MaxFiles,
		StreamAddress: c.StreamAddress().String(),
		Log:           log.With("part", "runtime"),
	}
	if id := c.Instance(); id != "" {
		rc.Bridge = "berth-" + id
	}
	return rc
}

// handlersOf converts the configured runtime handlers.
func handlersOf(configured map[string]inprocess.Handler) handler.Handlers {
	all := handler.Handlers{}
	for name, h := range configured {
		all[name] = handler.Handler{
			Shim: h.Shim, Binary: h.Binary, Root: h.Options.Root, NoPivotRoot: h.Options.NoPivotRoot,
			NoNewKeyring: h.Options.NoNewKeyring, ConfigPath: h.Options.ConfigPath, TypeURL: h.Options.TypeURL,
			PodAnnotations: h.PodAnnotations, ContainerAnnotations: h.ContainerAnnotations,
			PrivilegedWithoutHostDevices: h.PrivilegedWithoutHostDevices,
		}
	}
	return all
}

// registryDir returns the directory of the hosts.toml files that configure access to registries. It is certs.d in the
// root directory if that exists, else containerd's own directory.
func registryDir(root string) string {
	own := filepath.Join(root, "certs.d")
	if _, err := os.Stat(own); err == nil {
		return own
	}
	return "/etc/containerd/certs.d"
}
