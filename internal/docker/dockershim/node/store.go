package node

import (
	"context"
	"fmt"
	"net"
	"strings"

	"github.com/containerd/containerd/api/services/introspection/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/berth-run/berth/internal/base/unixsocket"
	"github.com/berth-run/berth/internal/docker"
)

// Store returns the directory that has the images and the writable layers of containers. In an Engine with containerd's
// image store, that is a directory of containerd, which may be on another file system than the data root. Store asks
// the Engine and containerd only until the first answer, as Root does.
func (s *Service) Store(ctx context.Context) (string, error) {
	if store := s.store.Load(); store != nil {
		return *store, nil
	}
	info, err := s.Info(ctx)
	if err != nil {
		return "", err
	}
	store := info.DockerRootDir
	if name := snapshotter(info); name != "" {
		if store, err = snapshotterRoot(ctx, info.Containerd.Address, name); err != nil {
			return "", err
		}
	}
	s.store.Store(&store)
	return store, nil
}

// snapshotterRoot returns the directory of a snapshotter of containerd.
func snapshotterRoot(ctx context.Context, socket, name string) (string, error) {
	socket = strings.TrimPrefix(socket, "unix://")
	connection, err := grpc.NewClient("passthrough:///containerd", grpc.WithContextDialer(
		func(ctx context.Context, _ string) (net.Conn, error) { return unixsocket.Dial(ctx, socket) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return "", err
	}
	defer func() { _ = connection.Close() }() // the call has ended
	plugins, err := introspection.NewIntrospectionClient(connection).Plugins(ctx,
		&introspection.PluginsRequest{Filters: []string{fmt.Sprintf("type==%s,id==%s", snapshotterType, name)}})
	if err != nil {
		return "", fmt.Errorf("ask containerd at %s for the directory of images: %w", socket, docker.Error(err))
	}
	for _, p := range plugins.GetPlugins() {
		if root := p.GetExports()["root"]; root != "" {
			return root, nil
		}
	}
	return "", fmt.Errorf("containerd at %s does not name the directory of its snapshotter %s", socket, name)
}
