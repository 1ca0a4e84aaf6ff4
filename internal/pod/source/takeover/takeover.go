package takeover

import (
	"context"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/model/observed"
	"github.com/berth-run/berth/internal/model/pod"
)

// Pods are the pods that the runtime has.
type Pods struct {
	Observed *observed.Table
}

// Await waits until the runtime's pods are known.
func (x Pods) Await(ctx context.Context) error { return x.Observed.Await(ctx) }

// Find returns the UID of the static pod that the runtime has for p, the pod of a manifest. The pod must have the same
// name. Each of its containers must have the annotation io.kubernetes.container.hash that its spec gives. It must have
// been created after the manifest's file was last written, because an older pod may have been started from different
// content.
func (x Pods) Find(p *pod.Pod) (types.UID, bool) {
	var written time.Time
	if p.Source == pod.SourceFile {
		info, err := os.Stat(p.Origin)
		if err != nil {
			return "", false // the file is being replaced
		}
		written = info.ModTime()
	}
	var all []*pod.Observed
	for _, o := range x.Observed.Snapshot().All() {
		all = append(all, o)
	}
	return decide(p.Key(), pod.ContainerHashes(p.Pod), written, all)
}
