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

// Cluster configures the node's part in a cluster. Fields without a comment are the kubelet's settings of the same
// name.
type Cluster struct {
	// Kubeconfig holds the API server's address and the node's credentials. With BootstrapKubeconfig the agent writes
	// it if it is missing or its client certificate is unusable.
	Kubeconfig, BootstrapKubeconfig string
	// CertDir holds the client and serving certificates that the agent requests or makes. Default RootDir/pki.
	CertDir string
	// RotateCertificates renews the client certificate before it expires.
	RotateCertificates bool
	// ContentType of requests. Default application/vnd.kubernetes.protobuf.
	ContentType string
	// Main and Events limit the requests to the API server. The default for each is 50 a second with bursts of 100. Pod
	// statuses have their own limit, so that no other request delays them: Main if kubeAPIQPS is set, otherwise 200 a
	// second with bursts of 400.
	Main, Events, Statuses Rate
	Registration           Registration
	Status                 NodeStatus
	// ExternalCloud is --cloud-provider=external: a controller of the cluster sets the node's addresses and removes the
	// initial taint.
	ExternalCloud bool
	// Detection is configMapAndSecretChangeDetectionStrategy. Default Watch.
	Detection v1beta1.ResourceChangeDetectionStrategy
	// AttachDetach is enableControllerAttachDetach: a controller of the cluster attaches volumes. Default true.
	AttachDetach bool
	// PodCertificates requests certificates for pods that project one (feature gate PodCertificateRequest). Default
	// false.
	PodCertificates bool
	// VolumeHealth: drivers report the condition of volumes (feature gate CSIVolumeHealth). Default false.
	VolumeHealth bool
}

// Rate limits requests. QPS 0 means 5 a second for Main, as in client-go, and no limit for events.
type Rate struct {
	QPS, Burst int
}

// Registration configures the creation of the Node object. Its taints and labels are Node.Taints and Node.Labels.
type Registration struct {
	// Register creates the Node object if it is missing (registerNode). Default true.
	Register   bool
	ProviderID string
}

// NodeStatus configures how often the node reports its status.
type NodeStatus struct {
	// UpdateFrequency is the interval between two computations of the status, by default 10 s. ReportFrequency is the
	// interval between two reports of an unchanged status. Its default is 5 min, or UpdateFrequency if only that is
	// set.
	UpdateFrequency, ReportFrequency time.Duration
	// LeaseDuration is how long the node counts as alive after a renewal of its lease, in whole seconds. Default 40 s.
	LeaseDuration time.Duration
	// MaxImages is how many images the status lists. Default 50, -1 for all.
	MaxImages int
}

// Offline configures the saved pods, which start when the node boots while the API server is away.
type Offline struct {
	// MaxAge is how long after the API server's last answer the saved pods may start. 0 sets no limit.
	MaxAge time.Duration
	// KeyFile holds the key that encrypts the saved pods. If it is empty, the agent makes RootDir/offline/key.
	KeyFile string
}

// These allow every pod of a full node to change at once. The API server has its own fairness (APF).
const defaultStatusQPS, defaultStatusBurst = 200, 400

// readCluster returns nil for a standalone agent.
func readCluster(in *input, f Flags) *Cluster {
	kc := in.kc
	checkClusterFlags(in, f)
	if f.Kubeconfig == "" {
		return nil
	}
	c := &Cluster{
		Kubeconfig: f.Kubeconfig, BootstrapKubeconfig: f.BootstrapKubeconfig, CertDir: f.CertDir,
		RotateCertificates: kc.RotateCertificates,
		ContentType:        kc.ContentType,
		Main:               readRate(in, "kubeAPIQPS", "kubeAPIBurst", kc.KubeAPIQPS, kc.KubeAPIBurst),
		Events:             readRate(in, "eventRecordQPS", "eventBurst", kc.EventRecordQPS, kc.EventBurst),
		Registration:       Registration{Register: *kc.RegisterNode, ProviderID: kc.ProviderID},
		Status:             readNodeStatus(in),
		ExternalCloud:      f.CloudProvider == "external",
		Detection:          kc.ConfigMapAndSecretChangeDetectionStrategy,
		PodCertificates:    kc.FeatureGates["PodCertificateRequest"],
		AttachDetach:       *kc.EnableControllerAttachDetach,
		VolumeHealth:       kc.FeatureGates["CSIVolumeHealth"],
	}
	if c.Statuses = c.Main; in.files.KubeAPIQPS == nil {
		c.Statuses = Rate{QPS: defaultStatusQPS, Burst: defaultStatusBurst}
	}
	if known := []string{"application/vnd.kubernetes.protobuf", "application/json"}; !slices.Contains(known,
		c.ContentType) {
		in.Add(field.ErrorList{field.NotSupported(field.NewPath("contentType"), c.ContentType, known)})
	}
	strategies := []v1beta1.ResourceChangeDetectionStrategy{v1beta1.GetChangeDetectionStrategy,
		v1beta1.TTLCacheChangeDetectionStrategy, v1beta1.WatchChangeDetectionStrategy}
	if !slices.Contains(strategies, c.Detection) {
		in.Add(field.ErrorList{field.NotSupported(field.NewPath("configMapAndSecretChangeDetectionStrategy"),
			c.Detection, strategies)})
	}
	checkLabels(in, f.NodeLabels)
	return c
}

// checkClusterFlags checks the flags that only a node of a cluster may set.
func checkClusterFlags(in *input, f Flags) {
	if f.CloudProvider != "" && f.CloudProvider != "external" {
		in.Add(field.ErrorList{field.NotSupported(field.NewPath("--cloud-provider"), f.CloudProvider,
			[]string{"", "external"})})
	}
	if f.Absent.Offline.MaxAge < 0 {
		in.Invalid("--offline-max-age", f.Absent.Offline.MaxAge.String(), "must not be negative; 0s sets no bound")
	}
	if f.Kubeconfig != "" {
		return
	}
	for _, flag := range []struct {
		name  string
		given bool
	}{
		{"--bootstrap-kubeconfig", f.BootstrapKubeconfig != ""}, {"--cloud-provider", f.CloudProvider != ""},
		{"--offline-max-age", f.Absent.Offline.MaxAge > 0}, {"--offline-key-file", f.Absent.Offline.KeyFile != ""},
	} {
		if flag.given {
			in.Add(field.ErrorList{field.Forbidden(field.NewPath(flag.name),
				"needs --kubeconfig, without which the agent is not part of a cluster")})
		}
	}
}

// checkLabels accepts only labels that a node may set on itself (NodeRestriction).
func checkLabels(in *input, labels map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		prefix, _, ok := strings.Cut(key, "/")
		ours := ok && slices.ContainsFunc([]string{"kubernetes.io", "k8s.io"}, func(domain string) bool {
			return prefix == domain || strings.HasSuffix(prefix, "."+domain)
		})
		if ours && !kubeletapis.IsKubeletLabel(key) {
			in.Invalid("--node-labels", key,
				"must be a label that a node may set on itself: one without the domains of Kubernetes, one below %s, "+
					"or one of %s",
				strings.Join(kubeletapis.KubeletLabelNamespaces(), " or "),
				strings.Join(kubeletapis.KubeletLabels(), ", "))
		}
	}
}

func readRate(in *input, qpsField, burstField string, qps *int32, burst int32) Rate {
	r := Rate{QPS: int(*qps), Burst: int(burst)}
	if r.QPS < 0 {
		in.Invalid(qpsField, r.QPS, "must not be negative")
	}
	if r.Burst < 0 {
		in.Invalid(burstField, r.Burst, "must not be negative; 0 stands for the default")
	}
	return r
}

func readNodeStatus(in *input) NodeStatus {
	kc := in.kc
	s := NodeStatus{
		UpdateFrequency: in.Duration("nodeStatusUpdateFrequency", kc.NodeStatusUpdateFrequency),
		ReportFrequency: in.Duration("nodeStatusReportFrequency", kc.NodeStatusReportFrequency),
		LeaseDuration:   time.Duration(kc.NodeLeaseDurationSeconds) * time.Second,
		MaxImages:       int(*kc.NodeStatusMaxImages),
	}
	if kc.NodeLeaseDurationSeconds < 0 {
		in.Invalid("nodeLeaseDurationSeconds", kc.NodeLeaseDurationSeconds, "must be more than 0")
	}
	if s.MaxImages < -1 {
		in.Invalid("nodeStatusMaxImages", s.MaxImages, "must be at least -1, which lists all images")
	}
	return s
}

// readOffline returns nil if no pods are saved.
func readOffline(f Flags) *Offline {
	if f.Kubeconfig == "" || f.Absent.Offline.Off {
		return nil
	}
	return &Offline{MaxAge: f.Absent.Offline.MaxAge, KeyFile: f.Absent.Offline.KeyFile}
}
