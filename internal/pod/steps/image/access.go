package image

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/steps/image/credential"
	"github.com/berth-run/berth/internal/record/event"
)

// access decides which pod may pull and use which image.
type access struct {
	events  event.Sink
	secrets secrets
	keys    keys
	records records
	log     *slog.Logger
}

// credentials returns the node's credentials for an image, and those in the pull Secrets of a pod. The error names the
// credentials that could not be read. As in the kubelet, the pull is then tried with the rest.
func (s *access) credentials(ctx context.Context, p *corev1.Pod, n name, have []*corev1.Secret,
	missing []string) ([]credential.Credential, error) {
	if s.keys == nil {
		return nil, nil
	}
	if len(missing) > 0 {
		s.events.Event(event.PodRef(p), corev1.EventTypeWarning, reason.PullSecretMissing,
			"Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.",
			strings.Join(missing, ", "))
	}
	return s.keys.Find(ctx, p, n.repository, have)
}

// pullSecrets returns the pull Secrets of a pod, and the names of those that do not exist.
func (s *access) pullSecrets(p *corev1.Pod) (have []*corev1.Secret, missing []string) {
	for _, ref := range p.Spec.ImagePullSecrets {
		if ref.Name == "" {
			continue
		}
		if s.secrets != nil {
			if secret, err := s.secrets.Secret(p.Namespace, ref.Name); err == nil {
				have = append(have, secret)
				continue
			}
		}
		missing = append(missing, ref.Name)
	}
	return have, missing
}

// unknownSecret returns an *object.Unknown if the API server has not yet sent one of the pod's pull Secrets. A pull
// without it could fail for no reason.
func (s *access) unknownSecret(p *corev1.Pod) error {
	if s.secrets == nil {
		return nil
	}
	for _, ref := range p.Spec.ImagePullSecrets {
		_, err := s.secrets.Secret(p.Namespace, ref.Name)
		if unknown, ok := errors.AsType[*object.Unknown](err); ok && ref.Name != "" {
			return unknown
		}
	}
	return nil
}

// allowed reports whether a pod may use an image that is present.
func (s *access) allowed(ctx context.Context, w want, f finding) bool {
	if s.records == nil {
		return true
	}
	return s.records.Allowed(w.image, f.name.repository, f.image.Id, func() []credential.Secret {
		if s.keys == nil {
			return nil
		}
		secrets, _ := s.pullSecrets(w.pod)
		// A credential that cannot be read gives no access. The pull that follows reports the error.
		granted, err := s.keys.SecretsFor(ctx, w.pod, f.name.repository, secrets)
		if err != nil {
			s.log.Debug("cannot read all credentials for an image", "image", w.image, "err", err)
		}
		return granted
	})
}

// Pull pulls an image for a command and not for a pod, with the node's credentials. It shares pulls with other
// commands, and waits behind the pulls of pods.
func (s *Images) Pull(ctx context.Context, image string) (*runtimeapi.Image, error) {
	n, err := parse(image)
	if err != nil {
		return nil, reason.New(reason.InvalidImageName, "parse image name %q: %w", image, err)
	}
	creds, trouble := []credential.Credential(nil), error(nil)
	if s.access.keys != nil {
		creds, trouble = s.access.keys.Find(ctx, nil, n.repository, nil)
	}
	const behindPods = -1
	p, err := s.pool.pull(ctx, order{name: n, creds: creds}, &waiter{priority: behindPods})
	if err != nil {
		if trouble != nil {
			s.log.Warn("image pull failed, and some credentials could not be read", "image", image, "err", trouble)
		}
		return nil, pullError(image, err)
	}
	return p.image, nil
}
