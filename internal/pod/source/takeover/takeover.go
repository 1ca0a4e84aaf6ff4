package takeover

import (
	"iter"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/model/pod"
)

// Find returns the UID of the static pod that the runtime has for p, the pod of a manifest. The pod must have the same
// name. Each of its containers must have the annotation io.kubernetes.container.hash that its spec gives (hashes, by
// name). It must have been created after the manifest's file was last written, because an older pod may have been
// started from different content.
func Find(p *pod.Pod, hashes map[string]string, observed iter.Seq2[types.UID, *pod.Observed]) (types.UID, bool) {
	var written time.Time
	if p.Source == pod.SourceFile {
		info, err := os.Stat(p.Origin)
		if err != nil {
			return "", false // the file is being replaced
		}
		written = info.ModTime()
	}
	var all []*pod.Observed
	for _, o := range observed {
		all = append(all, o)
	}
	return decide(p.Key(), hashes, written, all)
}
