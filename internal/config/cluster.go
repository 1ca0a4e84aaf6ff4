package config

import (
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubelet/config/v1beta1"
	kubeletapis "k8s.io/kubelet/pkg/apis"
)

// Cluster says how the node is one of a cluster. Numbers without a comment are
// the kubelet's of the same name.
type Cluster struct {
	// Kubeconfig says where the API server is and who the node is. With
	// BootstrapKubeconfig it is written when it is absent, or when its client
	// certificate is of no use any more.
	Kubeconfig, BootstrapKubeconfig string
	// CertDir has the client and serving certificates that the agent asks for
	// or makes. Default RootDir/pki.
	CertDir string
	// RotateCertificates renews the client certificate before it expires.
	RotateCertificates bool
	// ContentType of requests. Default application/vnd.kubernetes.protobuf.
	ContentType string
	// Main and Events bound the requests to the API server. Default 50 a second,
	// 100 at once, for each. Statuses of pods have a budget of their own, so that
	// nothing delays them: Main where kubeAPIQPS is set, else 200 a second, 400 at once.
	Main, Events, Statuses Rate
	Registration           Registration
	Status                 NodeStatus
	// ExternalCloud is --cloud-provider=external: a controller of the cluster
	// tells the node's addresses and takes away the taint that it is made with.
	ExternalCloud bool
	// Detection is configMapAndSecretChangeDetectionStrategy. Default Watch.
	Detection v1beta1.ResourceChangeDetectionStrategy
	// AttachDetach is enableControllerAttachDetach: volumes are attached by a
	// controller of the cluster. Default true.
	AttachDetach bool
}

// Rate bounds requests. QPS 0 is 5 a second for Main, as client-go has it, and
// no bound for events.
type Rate struct {
	QPS, Burst int
}

// Registration says what the Node object is made with. Taints and labels are
// Node.Taints and Flags.NodeLabels.
type Registration struct {
	// Register makes the object when it is absent (registerNode). Default true.
	Register   bool
	ProviderID string
}

// NodeStatus says how often the node tells how it is.
type NodeStatus struct {
	// UpdateFrequency is how often it is looked at, default 10 s; ReportFrequency
	// is how often it is told unchanged, default 5 min, or UpdateFrequency where
	// that alone is set.
	UpdateFrequency, ReportFrequency time.Duration
	// LeaseDuration is for how long the node counts as alive after a renewal,
	// whole seconds, default 40 s.
	LeaseDuration time.Duration
	// MaxImages is how many images are told of, default 50, -1 all.
	MaxImages int
}

// Offline is the record of accepted pods from which they start when the node
// boots while the API server is away.
type Offline struct {
	// MaxAge is how long after the API server was last heard of its pods are
	// started from the record. 0: however long it was.
	MaxAge time.Duration
	// KeyFile has the key of the record. Empty: one is made, RootDir/offline/key.
	KeyFile string
}

// Enough for every pod of a full node to change at once; the API server has its
// own fairness (APF).
const defaultStatusQPS, defaultStatusBurst = 200, 400

// joiner is the part of builder that reads what the node is to the cluster.
type joiner struct{ *builder }

// cluster is nil for a standalone agent.
func (b joiner) cluster(f Flags) *Cluster {
	kc := b.kc
	b.flags(f)
	if f.Kubeconfig == "" {
		return nil
	}
	c := &Cluster{
		Kubeconfig: f.Kubeconfig, BootstrapKubeconfig: f.BootstrapKubeconfig, CertDir: f.CertDir,
		RotateCertificates: kc.RotateCertificates,
		ContentType:        kc.ContentType,
		Main:               b.rate("kubeAPIQPS", "kubeAPIBurst", kc.KubeAPIQPS, kc.KubeAPIBurst),
		Events:             b.rate("eventRecordQPS", "eventBurst", kc.EventRecordQPS, kc.EventBurst),
		Registration:       Registration{Register: *kc.RegisterNode, ProviderID: kc.ProviderID},
		Status:             b.status(),
		ExternalCloud:      f.CloudProvider == "external",
		Detection:          kc.ConfigMapAndSecretChangeDetectionStrategy,
		AttachDetach:       *kc.EnableControllerAttachDetach,
	}
	if c.Statuses = c.Main; b.files.KubeAPIQPS == nil {
		c.Statuses = Rate{QPS: defaultStatusQPS, Burst: defaultStatusBurst}
	}
	if known := []string{"application/vnd.kubernetes.protobuf", "application/json"}; !slices.Contains(known,
		c.ContentType) {
		b.add(field.ErrorList{field.NotSupported(field.NewPath("contentType"), c.ContentType, known)})
	}
	strategies := []v1beta1.ResourceChangeDetectionStrategy{v1beta1.GetChangeDetectionStrategy,
		v1beta1.TTLCacheChangeDetectionStrategy, v1beta1.WatchChangeDetectionStrategy}
	if !slices.Contains(strategies, c.Detection) {
		b.add(field.ErrorList{field.NotSupported(field.NewPath("configMapAndSecretChangeDetectionStrategy"),
			c.Detection, strategies)})
	}
	b.labels(f.NodeLabels)
	return c
}

// flags checks what only an agent of a cluster may be told.
func (b joiner) flags(f Flags) {
	if f.CloudProvider != "" && f.CloudProvider != "external" {
		b.add(field.ErrorList{field.NotSupported(field.NewPath("--cloud-provider"), f.CloudProvider,
			[]string{"", "external"})})
	}
	if f.Offline.MaxAge < 0 {
		b.invalid("--offline-max-age", f.Offline.MaxAge.String(), "must not be negative; 0s sets no bound")
	}
	if f.Kubeconfig != "" {
		return
	}
	for _, flag := range []struct {
		name  string
		given bool
	}{
		{"--bootstrap-kubeconfig", f.BootstrapKubeconfig != ""}, {"--cloud-provider", f.CloudProvider != ""},
		{"--offline-max-age", f.Offline.MaxAge > 0}, {"--offline-key-file", f.Offline.KeyFile != ""},
	} {
		if flag.given {
			b.add(field.ErrorList{field.Forbidden(field.NewPath(flag.name),
				"needs --kubeconfig, without which the agent is not part of a cluster")})
		}
	}
}

// labels are those that a node may give itself (NodeRestriction).
func (b joiner) labels(labels map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		prefix, _, ok := strings.Cut(key, "/")
		ours := ok && slices.ContainsFunc([]string{"kubernetes.io", "k8s.io"}, func(domain string) bool {
			return prefix == domain || strings.HasSuffix(prefix, "."+domain)
		})
		if ours && !kubeletapis.IsKubeletLabel(key) {
			b.invalid("--node-labels", key,
				"must be one that a node may give itself: a name of its own, below %s, or one of %s",
				strings.Join(kubeletapis.KubeletLabelNamespaces(), " or "),
				strings.Join(kubeletapis.KubeletLabels(), ", "))
		}
	}
}

func (b joiner) rate(qpsField, burstField string, qps *int32, burst int32) Rate {
	r := Rate{QPS: int(*qps), Burst: int(burst)}
	if r.QPS < 0 {
		b.invalid(qpsField, r.QPS, "must not be negative")
	}
	if r.Burst < 0 {
		b.invalid(burstField, r.Burst, "must not be negative; 0 stands for the default")
	}
	return r
}

func (b joiner) status() NodeStatus {
	kc := b.kc
	s := NodeStatus{
		UpdateFrequency: b.duration("nodeStatusUpdateFrequency", kc.NodeStatusUpdateFrequency),
		ReportFrequency: b.duration("nodeStatusReportFrequency", kc.NodeStatusReportFrequency),
		LeaseDuration:   time.Duration(kc.NodeLeaseDurationSeconds) * time.Second,
		MaxImages:       int(*kc.NodeStatusMaxImages),
	}
	if kc.NodeLeaseDurationSeconds < 0 {
		b.invalid("nodeLeaseDurationSeconds", kc.NodeLeaseDurationSeconds, "must be more than 0")
	}
	if s.MaxImages < -1 {
		b.invalid("nodeStatusMaxImages", s.MaxImages, "must be at least -1, which tells of all")
	}
	return s
}

// offline is nil where no record is kept.
func (b joiner) offline(f Flags) *Offline {
	if f.Kubeconfig == "" || f.Offline.Off {
		return nil
	}
	return &Offline{MaxAge: f.Offline.MaxAge, KeyFile: f.Offline.KeyFile}
}
