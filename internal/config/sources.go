package config

import (
	"fmt"
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/berth-run/berth/internal/config/kubeletfile"
)

// DefaultClaimRetention is how long the data of a deleted claim is kept.
const DefaultClaimRetention = time.Hour

// What happens to the pods of manifests while the manifest directory is missing.
const (
	MissingKeep = "keep" // they run on
	MissingEnd  = "end"  // they end, as under a kubelet
)

// ManifestFlags set the agent's behaviour for pods of manifests, and for manifests and objects that are gone.
type ManifestFlags struct {
	// Missing is MissingKeep, the default of a standalone node, or MissingEnd, the default with Kubeconfig. If it is
	// empty, the field missingManifests of the files counts.
	Missing string
	Static  string // "ordinary", the default of a standalone node, or "critical", the default with Kubeconfig
	// ClaimRetention is how long the data of a deleted claim is kept. nil stands for DefaultClaimRetention.
	ClaimRetention *time.Duration
}

// Sources configures where pods come from.
type Sources struct {
	StaticPodPath                          string // default RootDir/manifests; none with Cluster, as for the kubelet
	StaticPodURL                           string
	StaticPodURLHeader                     http.Header
	FileCheckFrequency, HTTPCheckFrequency time.Duration // default 20 s
	// KeepMissing lets the pods of manifests run on while their directory is missing. Default: true without Cluster.
	KeepMissing    bool
	StaticCritical bool // every static pod is critical, whatever its priority; default: true with Cluster
	// ClaimRetention is how long the data of a deleted claim is kept. Default 1 h; 0 removes it at once.
	ClaimRetention time.Duration
}

// readMissing returns the field missingManifests of the files, or "" if they do not set it.
func readMissing(files []kubeletfile.Layer) (string, error) {
	value, file := kubeletfile.MissingManifests(files)
	if value == nil {
		return "", nil
	}
	text, _ := value.(string) // another type gives "", which is refused
	if text != MissingKeep && text != MissingEnd {
		return "", fmt.Errorf("%s: missingManifests: wants %s or %s, got %v", file, MissingKeep, MissingEnd, value)
	}
	return text, nil
}

func readSources(in *input, f Flags) Sources {
	kc := in.kc
	s := Sources{
		StaticPodPath: kc.StaticPodPath, StaticPodURL: kc.StaticPodURL,
		FileCheckFrequency: in.Duration("fileCheckFrequency", kc.FileCheckFrequency),
		HTTPCheckFrequency: in.Duration("httpCheckFrequency", kc.HTTPCheckFrequency),
		KeepMissing:        f.Kubeconfig == "", StaticCritical: f.Kubeconfig != "",
		ClaimRetention: DefaultClaimRetention,
	}
	if f.Absent.Manifests.Missing != "" {
		missing := in.OneOf("--missing-manifests", f.Absent.Manifests.Missing, MissingKeep, MissingEnd)
		s.KeepMissing = missing == MissingKeep
	}
	if m := f.Absent.Manifests.Static; m != "" {
		s.StaticCritical = in.OneOf("--static-pods", m, "critical", "ordinary") == "critical"
	}
	if r := f.Absent.Manifests.ClaimRetention; r != nil {
		if s.ClaimRetention = *r; *r < 0 {
			in.Invalid("--claim-retention", r.String(), "must not be negative; 0s removes the data at once")
		}
	}
	in.Absolute("staticPodPath", s.StaticPodPath)
	if s.StaticPodURL != "" {
		if u, err := url.Parse(s.StaticPodURL); err != nil || u.Scheme != "http" && u.Scheme != "https" ||
			u.Host == "" {
			in.Invalid("staticPodURL", s.StaticPodURL, "must be an http or https URL")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(kc.StaticPodURLHeader)) {
		in.Rules("staticPodURLHeader", name, validation.IsHTTPHeaderName(name))
		if s.StaticPodURLHeader == nil {
			s.StaticPodURLHeader = map[string][]string{}
		}
		s.StaticPodURLHeader[textproto.CanonicalMIMEHeaderKey(name)] = slices.Clone(kc.StaticPodURLHeader[name])
	}
	return s
}
