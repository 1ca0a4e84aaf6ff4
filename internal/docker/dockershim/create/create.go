package create

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"

	"github.com/moby/moby/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/docker"
	"github.com/berth-run/berth/internal/docker/dockershim/identity"
	"github.com/berth-run/berth/internal/docker/dockershim/index"
	"github.com/berth-run/berth/internal/docker/dockershim/translate"
)

// Judge decides about containers that already have the name of a new one.
type Judge interface {
	// Usable reports whether a container can serve the request that created it.
	Usable(*index.Record) bool
	// Remove removes a container, and everything that was made for it outside of Docker.
	Remove(ctx context.Context, c *index.Record) error
}

// Container creates a container. If an earlier call with the same request has created a usable one, it returns that
// one. Another container with the name is removed, or is an error if it runs. If Docker keeps the name of a container
// that it has lost, the new container's name gets a random suffix.
func Container(ctx context.Context, engine *docker.Client, known *index.Index, o client.ContainerCreateOptions,
	judge Judge) (id string, found bool, err error) {
	created, err := engine.ContainerCreate(ctx, o)
	holder := docker.NameHolder(err)
	if holder == "" {
		return created.ID, false, docker.Error(err)
	}
	record, err := known.Look(ctx, holder)
	if err != nil {
		return "", false, err
	}
	switch decide(record, identity.SpecOf(o.Config.Labels), judge.Usable) {
	case reuse:
		return record.ID, true, nil
	case refuse:
		return "", false, status.Errorf(codes.AlreadyExists, "container %s has the name %s and runs", holder, o.Name)
	case remove:
		if err := judge.Remove(ctx, record); err != nil {
			return "", false, err
		}
	case rename:
		o.Name = identity.Suffixed(o.Name, rand.Uint32())
	}
	created, err = engine.ContainerCreate(ctx, o)
	return created.ID, false, docker.Error(err)
}

// Profile returns the content of the machine's seccomp profile that a container asks for; "" if it asks for none.
func Profile(p *runtimeapi.SecurityProfile) (string, error) {
	path := translate.SeccompFile(p)
	if path == "" {
		return "", nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", status.Error(codes.InvalidArgument, fmt.Sprintf("read seccomp profile: %s", err))
	}
	return string(text), nil
}
