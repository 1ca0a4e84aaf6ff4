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

// Issuer hands out what only a control plane can: service account tokens, trust
// bundles and pod certificates.
type Issuer interface {
	// Issue makes the files of one source of a volume, by their paths. until is
	// when they are to be renewed; zero for never. It is asked at each look at
	// the volume, and hands out again what need not be renewed.
	Issue(ctx context.Context, p *corev1.Pod, v *corev1.Volume, source int) (files map[string][]byte, until time.Time,
		err error)
}

// Source is what is in projected volumes.
type Source struct {
	// Allocatable is what all pods of the node may have.
	Allocatable corev1.ResourceList
	// Issuer is nil on a standalone node.
	Issuer Issuer
}

// Dir is the kubelet's.
func (Source) Dir() string { return "kubernetes.io~projected" }

// Serves says whether the volume is projected.
func (Source) Serves(v *corev1.Volume) bool { return v.Projected != nil }

// Uses are the objects of all sources.
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
		}
	}
	return keys
}

// Content is that of all sources.
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

// part is the content of one source.
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
		err = errors.New("it is of a kind that this agent does not know")
	case s.Issuer == nil:
		err = errors.New("only a control plane can hand it out, and this node has none")
	default:
		var issued map[string][]byte
		issued, c.Until, err = s.Issuer.Issue(ctx, p, v, i)
		if _, waits := object.Waits(err); err != nil && !waits {
			err = &payload.Later{Err: err}
		}
		c.Files = payload.Files{}
		for path, data := range issued {
			c.Files[path] = credential(p, data, mode)
		}
	}
	return c, err
}
