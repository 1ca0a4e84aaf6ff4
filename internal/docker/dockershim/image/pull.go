package image

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/moby/moby/api/pkg/authconfig"
	"github.com/moby/moby/api/types/registry"
	"github.com/moby/moby/client"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/docker"
)

// PullOptions configure pulls.
type PullOptions struct {
	// ProgressDeadline ends a pull that has made no progress for this long; 0 is DefaultProgressDeadline.
	ProgressDeadline time.Duration
}

// DefaultProgressDeadline is cri-dockerd's default.
const DefaultProgressDeadline = time.Minute

type puller struct {
	client *docker.Client
	PullOptions
	progress progress
}

// errStalled is the cause of the end of a pull without progress.
var errStalled = errors.New("no progress")

// pull pulls an image. The Engine reports most failures in the stream of its progress.
func (p *puller) pull(ctx context.Context, name string, auth *runtimeapi.AuthConfig) error {
	header, err := authHeader(auth)
	if err != nil {
		return status.Errorf(codes.InvalidArgument, "credentials for image %s: %s", name, err)
	}
	limit := p.ProgressDeadline
	if limit == 0 {
		limit = DefaultProgressDeadline
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stall := time.AfterFunc(limit, func() { cancel(errStalled) })
	defer stall.Stop()
	stream, err := p.client.ImagePull(ctx, name, client.ImagePullOptions{RegistryAuth: header})
	if err != nil {
		return p.failure(ctx, name, limit, err)
	}
	defer func() { _ = stream.Close() }() // it is only read
	note, end := p.progress.begin(name)
	defer end()
	last := ""
	for message, err := range stream.JSONMessages(ctx) {
		if err == nil && message.Error != nil {
			err = message.Error
		}
		if err != nil {
			return p.failure(ctx, name, limit, err)
		}
		if now := fmt.Sprint(message.ID, message.Status, message.Progress); now != last {
			last = now
			stall.Reset(limit)
			note(message)
		}
	}
	return p.failure(ctx, name, limit, context.Cause(ctx))
}

// failure adds the name of the image to an error, and to a stalled pull the limit.
func (p *puller) failure(ctx context.Context, name string, limit time.Duration, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(context.Cause(ctx), errStalled):
		return status.Errorf(codes.DeadlineExceeded, "pull image %s: no progress for %s", name, limit)
	case unavailable(err):
		return status.Errorf(codes.Unknown, "RegistryUnavailable: pull image %s: %s", name,
			status.Convert(docker.Error(err)).Message())
	}
	s := status.Convert(docker.Error(err))
	return status.Errorf(s.Code(), "pull image %s: %s", name, s.Message())
}

// unavailable reports whether the registry is down. The kubelet recognises the error by its name, RegistryUnavailable.
func unavailable(err error) bool {
	for _, answer := range []string{"502 Bad Gateway", "503 Service Unavailable", "504 Gateway Timeout"} {
		if strings.Contains(err.Error(), answer) {
			return true
		}
	}
	return false
}

// authHeader encodes credentials for the Engine.
func authHeader(a *runtimeapi.AuthConfig) (string, error) {
	if a == nil {
		return "", nil
	}
	c := registry.AuthConfig{Username: a.GetUsername(), Password: a.GetPassword(), ServerAddress: a.GetServerAddress(),
		IdentityToken: a.GetIdentityToken(), RegistryToken: a.GetRegistryToken()}
	if a.GetAuth() != "" && c.Username == "" {
		text, err := base64.StdEncoding.DecodeString(strings.TrimRight(a.GetAuth(), "\x00"))
		if err != nil {
			return "", err
		}
		user, password, ok := strings.Cut(string(text), ":")
		if !ok {
			return "", errors.New("the field auth has no colon")
		}
		c.Username, c.Password = user, strings.TrimRight(password, "\x00")
	}
	return authconfig.Encode(c)
}
