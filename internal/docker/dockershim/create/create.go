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

// Judge knows about the containers whose names are in use.
type Judge interface {
	// Usable reports whether a container can serve the request that it was made for.
	Usable(*index.Record) bool
	// Remove removes a container with everything that it has.
	Remove(ctx context.Context, c *index.Record) error
}

// Container creates a container, or finds the one that an earlier call with the same request has made and that is
// usable. If another container has the name, it is removed if it does not run. If Docker has lost the container that
// has the name, the new one gets a random suffix.
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
	case ours:
		return record.ID, true, nil
	case taken:
		return "", false, status.Errorf(codes.AlreadyExists, "container %s has the name %s and runs", holder, o.Name)
	case dead:
		if err := judge.Remove(ctx, record); err != nil {
			return "", false, err
		}
	case phantom: // the Engine has lost the container and kept its name
		o.Name = identity.Suffixed(o.Name, rand.Uint32())
	}
	created, err = engine.ContainerCreate(ctx, o)
	return created.ID, false, docker.Error(err)
}

// Profile reads a seccomp profile of the machine; "" if a container is to have none of the machine's.
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
