package projected

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/steps/volume/downwardapi"
	"github.com/berth-run/berth/internal/pod/steps/volume/keyvalue"
	"github.com/berth-run/berth/internal/pod/steps/volume/payload"
)

// Issuer issues the credentials that only a control plane can issue: service account tokens, trust bundles and pod
// certificates.
type Issuer interface {
	// Issue makes the files of one source of a volume, by their paths. until is when they must be renewed; zero is
	// never. Each update of the volume calls it; it returns the same files until they must be renewed.
	Issue(ctx context.Context, p *corev1.Pod, v *corev1.Volume, source int) (files map[string][]byte, until time.Time,
		err error)
}

// Source decides the content of projected volumes.
type Source struct {
	// Allocatable are the resources that pods may have on this node.
	Allocatable corev1.ResourceList
	// Issuer is nil on a standalone node.
	Issuer Issuer
}

// Dir is the name of the kubelet's directory for these volumes.
func (Source) Dir() string { return "kubernetes.io~projected" }

// Serves reports whether the volume is a projected volume.
func (Source) Serves(v *corev1.Volume) bool { return v.Projected != nil }

// Uses returns the objects of all sources.
func (Source) Uses(p *corev1.Pod, v *corev1.Volume) []object.Key {
	var keys []object.Key
	for _, s := range v.Projected.Sources {
		switch {
		case s.ConfigMap != nil:
			keys = append(keys, keyvalue.ConfigMap.Key(p.Namespace, s.ConfigMap.Name))
		case s.Secret != nil:
			keys = append(keys, keyvalue.Secret.Key(p.Namespace, s.Secret.Name))
		case s.ClusterTrustBundle != nil:
			keys = append(keys, object.Bundles())
		case s.PodCertificate != nil:
			keys = append(keys, object.CertificatesOf(p))
		}
	}
	return keys
}

// Content merges the files of all sources. A later source wins.
func (s Source) Content(ctx context.Context, o payload.Objects, p *corev1.Pod, v *corev1.Volume) (payload.Content,
	error) {
	all := payload.Content{Files: payload.Files{}}
	var lacks payload.Lacks
	for i := range v.Projected.Sources {
		c, err := s.part(ctx, o, p, v, i)
		if keys, waits := object.Waits(err); waits && len(keys) > 0 {
			lacks = append(lacks, err)
			continue
		}
		if err != nil {
			return payload.Content{}, fmt.Errorf("source %d: %w", i, err)
		}
		maps.Copy(all.Files, c.Files)
		if all.Until.IsZero() || !c.Until.IsZero() && c.Until.Before(all.Until) {
			all.Until = c.Until
		}
	}
	return all, lacks.Err()
}

// part returns the content of one source.
func (s Source) part(ctx context.Context, o payload.Objects, p *corev1.Pod, v *corev1.Volume, i int) (c payload.Content,
	err error) {
	source, mode := v.Projected.Sources[i], payload.Mode(v.Projected.DefaultMode)
	switch {
	case source.ConfigMap != nil:
		m := source.ConfigMap
		c.Files, err = keyvalue.ConfigMap.Files(o, p.Namespace,
			payload.Reference{Name: m.Name, Items: m.Items, Optional: m.Optional}, mode)
	case source.Secret != nil:
		m := source.Secret
		c.Files, err = keyvalue.Secret.Files(o, p.Namespace,
			payload.Reference{Name: m.Name, Items: m.Items, Optional: m.Optional}, mode)
	case source.DownwardAPI != nil:
		c.Files, err = downwardapi.Files(p, source.DownwardAPI.Items, mode, s.Allocatable)
	case !isIssued(source):
		err = errors.New("this agent does not serve a source of this kind")
	case s.Issuer == nil:
		err = errors.New("only a control plane can issue the source, and this node has none")
	default:
		var issued map[string][]byte
		issued, c.Until, err = s.Issuer.Issue(ctx, p, v, i)
		if _, waits := object.Waits(err); err != nil && !waits {
			err = &payload.Unavailable{Err: err}
		}
		c.Files = payload.Files{}
		for path, data := range issued {
			c.Files[path] = credential(p, data, mode)
		}
	}
	return c, err
}
