package config

import (
	"crypto/tls"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/berth-run/berth/internal/config/kubeletfile"
)

// joined is the Config with --kubeconfig alone. It equals the kubelet's defaults.
func joined() *Config {
	c := alone()
	c.RootDir = "/var/lib/kubelet"
	c.CommandLine = commandLine(Flags{RootDir: c.RootDir, RunDir: c.RunDir, CertDir: "/var/lib/kubelet/pki",
		Kubeconfig: "/k"})
	c.Sources.StaticPodPath, c.Sources.KeepMissing, c.Sources.StaticCritical = "", false, true
	c.Runtime.KubeletsDefault = "unix:///run/containerd/containerd.sock"
	c.Cluster = &Cluster{
		Kubeconfig: "/k", CertDir: "/var/lib/kubelet/pki", ContentType: "application/vnd.kubernetes.protobuf",
		Main: Rate{50, 100}, Events: Rate{50, 100}, Statuses: Rate{200, 400},
		Registration: Registration{Register: true},
		Status: NodeStatus{UpdateFrequency: 10 * time.Second, ReportFrequency: 5 * time.Minute,
			LeaseDuration: 40 * time.Second, MaxImages: 50},
		Detection: v1beta1.WatchChangeDetectionStrategy, AttachDetach: true,
	}
	c.Offline = &Offline{}
	c.Server = Server{
		HTTPS: netip.MustParseAddrPort("0.0.0.0:10250"), Healthz: netip.MustParseAddrPort("127.0.0.1:10248"),
		TLS: TLS{CertDir: "/var/lib/kubelet/pki", MinVersion: tls.VersionTLS12},
		Auth: Auth{TokenReview: true, TokenTTL: 2 * time.Minute, AllowedTTL: 5 * time.Minute,
			DeniedTTL: 30 * time.Second},
		Handlers:    Handlers{Debugging: true, SystemLog: true, Profiling: true, DebugFlags: true},
		IdleTimeout: 4 * time.Hour, VolumePeriod: time.Minute,
	}
	return c
}

func TestJoined(t *testing.T) {
	tests := []struct {
		name, text string
		flags      Flags // Kubeconfig is added
		want       func(*Config)
	}{
		{name: "defaults", want: func(*Config) {}},
		{
			name: "flags",
			flags: Flags{
				RootDir: "/srv/k", BootstrapKubeconfig: "/b", CertDir: "/certs/", CloudProvider: "external",
				NodeLabels: map[string]string{"node.kubernetes.io/role": "a", "example.com/b": "c", "plain": ""},
				Absent:     AbsentFlags{Offline: OfflineFlags{MaxAge: time.Hour, KeyFile: "/key"}},
			},
			want: func(c *Config) {
				c.RootDir, c.RunDir, c.Socket = "/srv/k", "/srv/k/run", "/srv/k/berth.sock"
				c.CommandLine = commandLine(Flags{RootDir: "/srv/k", RunDir: "/srv/k/run", CertDir: "/certs",
					Kubeconfig: "/k", BootstrapKubeconfig: "/b", CloudProvider: "external"})
				c.Node.Labels = map[string]string{"node.kubernetes.io/role": "a", "example.com/b": "c", "plain": ""}
				c.Cluster.BootstrapKubeconfig, c.Cluster.CertDir, c.Cluster.ExternalCloud, c.Server.TLS.CertDir = "/b",
					"/certs", true, "/certs"
				c.Offline = &Offline{MaxAge: time.Hour, KeyFile: "/key"}
			},
		},
		{name: "no record", flags: Flags{Absent: AbsentFlags{Offline: OfflineFlags{Off: true}}}, want: func(c *Config) {
			c.Offline = nil
		}},
		{
			name: "cluster",
			text: "kubeAPIQPS: 0\nkubeAPIBurst: 7\neventRecordQPS: 8\neventBurst: 9\ncontentType: " +
				"application/json\nregisterNode: false\nproviderID: p://1\nnodeStatusUpdateFrequency: 3s\n" +
				"nodeLeaseDurationSeconds: 20\nnodeStatusMaxImages: -1\nconfigMapAndSecretChangeDetectionStrategy: " +
				"Cache\nenableControllerAttachDetach: false\nrotateCertificates: true\n",
			want: func(c *Config) {
				c.Cluster.Main, c.Cluster.Statuses, c.Cluster.Events, c.Cluster.ContentType = Rate{0, 7}, Rate{0, 7},
					Rate{8, 9}, "application/json"
				c.Cluster.Registration = Registration{ProviderID: "p://1"}
				c.Cluster.Status = NodeStatus{UpdateFrequency: 3 * time.Second, ReportFrequency: 3 * time.Second,
					LeaseDuration: 20 * time.Second, MaxImages: -1}
				c.Cluster.Detection = v1beta1.TTLCacheChangeDetectionStrategy
				c.Cluster.AttachDetach, c.Cluster.RotateCertificates = false, true
			},
		},
		{name: "report as often as is said", text: "nodeStatusUpdateFrequency: 3s\nnodeStatusReportFrequency: 1m\n",
			want: func(c *Config) {
				c.Cluster.Status.UpdateFrequency, c.Cluster.Status.ReportFrequency = 3*time.Second, time.Minute
			}},
		{
			name: "server",
			text: "address: '::1'\nport: 1\nreadOnlyPort: 2\nhealthzBindAddress: 0.0.0.0\nhealthzPort: " +
				"3\ntlsCertFile: /c\ntlsPrivateKeyFile: /p\ntlsMinVersion: VersionTLS13\ntlsCipherSuites: " +
				"[TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]\ntlsCurvePreferences: [29]\nserverTLSBootstrap: true\n" +
				"authentication: {x509: {clientCAFile: /ca}, anonymous: {enabled: true}, webhook: {enabled: false, " +
				"cacheTTL: 1s}}\nauthorization: {mode: AlwaysAllow, webhook: {cacheAuthorizedTTL: 2s, " +
				"cacheUnauthorizedTTL: 3s}}\n" +
				"enableDebuggingHandlers: false\nenableSystemLogQuery: true\nenableProfilingHandler: " +
				"false\nenableDebugFlagsHandler: false\nenableContentionProfiling: " +
				"true\nstreamingConnectionIdleTimeout: 5s\n",
			want: func(c *Config) {
				c.Server = Server{
					HTTPS: netip.MustParseAddrPort("[::1]:1"), ReadOnly: netip.MustParseAddrPort("[::1]:2"),
					Healthz: netip.MustParseAddrPort("0.0.0.0:3"),
					TLS: TLS{CertFile: "/c", KeyFile: "/p", Bootstrap: true, CertDir: "/var/lib/kubelet/pki",
						MinVersion:   tls.VersionTLS13,
						CipherSuites: []uint16{tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256},
						Curves:       []tls.CurveID{tls.X25519}, ClientCAFile: "/ca"},
					Auth: Auth{Anonymous: true, TokenTTL: time.Second, AlwaysAllow: true,
						AllowedTTL: 2 * time.Second, DeniedTTL: 3 * time.Second},
					Handlers:    Handlers{SystemLog: true, SystemLogQuery: true, ContentionProfiling: true},
					IdleTimeout: 5 * time.Second, VolumePeriod: time.Minute,
				}
			},
		},
		{name: "no server", text: "enableServer: false\nhealthzPort: 0\n", want: func(c *Config) {
			c.Server = Server{}
		}},
		{name: "shutdown", text: "shutdownGracePeriod: 30s\nshutdownGracePeriodCriticalPods: 10s\n",
			want: func(c *Config) {
				c.Shutdown = Shutdown{{0, 20 * time.Second}, {2_000_000_000, 10 * time.Second}}
			}},
		{name: "shutdown by priority",
			text: "shutdownGracePeriodByPodPriority: [{priority: 100, shutdownGracePeriodSeconds: 5}, {priority: 0, " +
				"shutdownGracePeriodSeconds: 9}]\n", want: func(c *Config) {
				c.Shutdown = Shutdown{{0, 9 * time.Second}, {100, 5 * time.Second}}
			}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.flags.Kubeconfig = "/k"
			kc, origin := parse(t, tt.text)
			got, errs := build(tt.flags, kc, host{name: "Host-1"})
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			want := joined()
			tt.want(want)
			if diff := cmp.Diff(want, got, compare()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if w := kubeletfile.Warnings(kc, origin, true, serves(kc, true)); len(w) > 0 && tt.name != "server" {
				t.Errorf("warnings: %v", w)
			}
		})
	}
}

// A standalone agent opens only the network ports that are configured.
func TestStandaloneServer(t *testing.T) {
	https := joined().Server
	https.Healthz = netip.AddrPort{}
	https.HTTPS = netip.MustParseAddrPort("0.0.0.0:10250")
	https.TLS.CertDir, https.TLS.ClientCAFile = "/var/lib/berth/pki", "/ca"
	https.Auth.TokenReview, https.Auth.AlwaysAllow = false, true
	tests := []struct {
		name, text string
		want       Server
	}{
		{"without authorities", "port: 10250\n", Server{}},
		{"without a port", "authentication: {x509: {clientCAFile: /ca}}\nserverTLSBootstrap: true\n", Server{}},
		{"with both", "port: 10250\nauthentication: {x509: {clientCAFile: /ca}}\nauthorization: {mode: AlwaysAllow}\n",
			https},
		{"healthz", "healthzPort: 10248\n", Server{Healthz: netip.MustParseAddrPort("127.0.0.1:10248")}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			kc, _ := parse(t, tt.text)
			got, errs := build(Flags{}, kc, host{name: "host"})
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			if diff := cmp.Diff(tt.want, got.Server, compare()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestInvalidCluster(t *testing.T) {
	tests := []struct {
		name, text string
		flags      Flags
		want       []string
	}{
		{name: "flags of the process", flags: Flags{Disk: DiskFlags{MinAge: -1}, Lock: Lock{Yield: true}},
			want: []string{
				`--minimum-container-ttl-duration: Invalid value: "-1ns": must not be negative; 0s sets no bound`,
				`--exit-on-lock-contention: Invalid value: true: needs --lock-file, the file that other processes open`,
			}},
		{name: "quotas without quotas", text: "featureGates: {LocalStorageCapacityIsolationFSQuotaMonitoring: false}\n",
			flags: Flags{Disk: DiskFlags{EmptyDirQuota: true}},
			want: []string{`--empty-dir-quota: Invalid value: true: needs project quotas, which the feature gate ` +
				`LocalStorageCapacityIsolationFSQuotaMonitoring: false turns off`}},
		{name: "flags without a cluster",
			flags: Flags{BootstrapKubeconfig: "/b", CloudProvider: "aws",
				Absent: AbsentFlags{Offline: OfflineFlags{MaxAge: -1, KeyFile: "/key"}}}, want: []string{
				`--cloud-provider: Unsupported value: "aws": supported values: "", "external"`,
				`--offline-max-age: Invalid value: "-1ns": must not be negative; 0s sets no bound`,
				`--bootstrap-kubeconfig: Forbidden: needs --kubeconfig, without which the agent is not part of a ` +
					`cluster`,
				`--cloud-provider: Forbidden: needs --kubeconfig, without which the agent is not part of a cluster`,
				`--offline-key-file: Forbidden: needs --kubeconfig, without which the agent is not part of a cluster`,
			}},
		{name: "a standalone server that would have to ask",
			text: "port: 10250\nauthentication: {x509: {clientCAFile: /ca}, webhook: {enabled: " +
				"true}}\nserverTLSBootstrap: true\n", want: []string{
				`f.yaml: authentication.webhook.enabled: Invalid value: true: needs --kubeconfig: there is no API ` +
					`server that judges tokens`,
				`authorization.mode: Invalid value: "": must be AlwaysAllow without --kubeconfig: there is no API ` +
					`server to ask, and any client with a certificate of authentication.x509.clientCAFile may do ` +
					`everything`,
				`f.yaml: serverTLSBootstrap: Invalid value: true: needs --kubeconfig: there is no API server that ` +
					`signs certificates`,
			}},
		{name: "labels",
			flags: Flags{Kubeconfig: "/k",
				NodeLabels: map[string]string{"node-role.kubernetes.io/control-plane": "", "a.k8s.io/b": ""}},
			want: []string{
				`--node-labels: Invalid value: "a.k8s.io/b": must be a label that a node may set on itself: one ` +
					`without the domains of Kubernetes, one below kubelet.kubernetes.io or node.kubernetes.io, or ` +
					`one of beta.kubernetes.io/arch, beta.kubernetes.io/instance-type, beta.kubernetes.io/os, ` +
					`failure-domain.beta.kubernetes.io/region, failure-domain.beta.kubernetes.io/zone, ` +
					`kubernetes.io/arch, kubernetes.io/hostname, kubernetes.io/os, ` +
					`node.kubernetes.io/instance-type, topology.kubernetes.io/region, ` +
					`topology.kubernetes.io/zone`,
				`--node-labels: Invalid value: "node-role.kubernetes.io/control-plane": must be a label that a ` +
					`node may set on itself: one without the domains of Kubernetes, one below ` +
					`kubelet.kubernetes.io or node.kubernetes.io, or one of beta.kubernetes.io/arch, ` +
					`beta.kubernetes.io/instance-type, beta.kubernetes.io/os, ` +
					`failure-domain.beta.kubernetes.io/region, failure-domain.beta.kubernetes.io/zone, ` +
					`kubernetes.io/arch, kubernetes.io/hostname, kubernetes.io/os, ` +
					`node.kubernetes.io/instance-type, topology.kubernetes.io/region, ` +
					`topology.kubernetes.io/zone`,
			}},
		{name: "cluster", flags: Flags{Kubeconfig: "/k"},
			text: "kubeAPIQPS: -1\nkubeAPIBurst: -1\neventRecordQPS: -1\neventBurst: -1\ncontentType: " +
				"text/plain\nnodeStatusUpdateFrequency: -1s\nnodeLeaseDurationSeconds: -1\nnodeStatusMaxImages: " +
				"-2\nconfigMapAndSecretChangeDetectionStrategy: Push\n", want: []string{
				`f.yaml: kubeAPIQPS: Invalid value: -1: must not be negative`,
				`f.yaml: kubeAPIBurst: Invalid value: -1: must not be negative; 0 stands for the default`,
				`f.yaml: eventRecordQPS: Invalid value: -1: must not be negative`,
				`f.yaml: eventBurst: Invalid value: -1: must not be negative; 0 stands for the default`,
				`f.yaml: nodeStatusUpdateFrequency: Invalid value: "-1s": must be more than 0s; leave it out for ` +
					`the default`,
				`f.yaml: nodeLeaseDurationSeconds: Invalid value: -1: must be more than 0`,
				`f.yaml: nodeStatusMaxImages: Invalid value: -2: must be at least -1, which lists all images`,
				`f.yaml: contentType: Unsupported value: "text/plain": supported values: ` +
					`"application/vnd.kubernetes.protobuf", "application/json"`,
				`f.yaml: configMapAndSecretChangeDetectionStrategy: Unsupported value: "Push": supported values: ` +
					`"Get", "Cache", "Watch"`,
			}},
		{name: "server", flags: Flags{Kubeconfig: "/k"},
			text: "address: x\nport: -1\nreadOnlyPort: 65536\nhealthzPort: -1\ntlsCertFile: c\ntlsMinVersion: " +
				"TLS1\ntlsCurvePreferences: [1]\nauthorization: {mode: RBAC}\nenableSystemLogHandler: " +
				"false\nenableSystemLogQuery: true\n", want: []string{
				`f.yaml: healthzPort: Invalid value: -1: must be between 1 and 65535`,
				`f.yaml: address: Invalid value: "x": must be an IP address`,
				`f.yaml: readOnlyPort: Invalid value: 65536: must be between 1 and 65535`,
				`f.yaml: enableSystemLogQuery: Invalid value: true: needs enableSystemLogHandler: true`,
				`f.yaml: tlsMinVersion: Unsupported value: "TLS1": supported values: "VersionTLS10", ` +
					`"VersionTLS11", "VersionTLS12", "VersionTLS13"`,
				`f.yaml: tlsCurvePreferences: Invalid value: [1]: curve preference 1 is not supported by the ` +
					`current Go version`,
				`f.yaml: tlsCertFile: Invalid value: "c": must be given together with tlsPrivateKeyFile, or not at all`,
				`f.yaml: tlsCertFile: Invalid value: "c": must be an absolute path`,
				`f.yaml: authorization.mode: Unsupported value: "RBAC": supported values: "AlwaysAllow", "Webhook"`,
				`f.yaml: port: Invalid value: -1: must be between 1 and 65535`,
			}},
		{name: "shutdown",
			text: "shutdownGracePeriod: 1ms\nshutdownGracePeriodCriticalPods: 2s\nshutdownGracePeriodByPodPriority: " +
				"[{priority: 1, shutdownGracePeriodSeconds: -1}, {priority: 1, shutdownGracePeriodSeconds: 1}]\n",
			want: []string{
				`f.yaml: shutdownGracePeriod: Invalid value: "1ms": must be 0s or at least 1s`,
				`f.yaml: shutdownGracePeriodCriticalPods: Invalid value: "2s": must be at most ` +
					`shutdownGracePeriod, 1ms, of which it is a part`,
				`f.yaml: shutdownGracePeriodByPodPriority[0].shutdownGracePeriodSeconds: Invalid value: -1: must ` +
					`not be negative`,
				`f.yaml: shutdownGracePeriodByPodPriority[1].priority: Duplicate value: 1`,
				`f.yaml: shutdownGracePeriodByPodPriority: Invalid value: ` +
					`[{"priority":1,"shutdownGracePeriodSeconds":-1},` +
					`{"priority":1,"shutdownGracePeriodSeconds":1}]: must not be set together with shutdownGracePeriod`,
			}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			kc, origin := parse(t, tt.text)
			_, errs := build(tt.flags, kc, host{name: "host"})
			if diff := cmp.Diff(tt.want, lines(located(errs, origin))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A relative path starts at the directory of the file that contains it.
func TestRelativePaths(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"base.yaml": "staticPodPath: m\nresolvConf: r\nfailSwapOn: false\nfailCgroupV1: false\n",
		"d/a.conf":  "authentication: {x509: {clientCAFile: ../ca}}\n"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(header+text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(filepath.Join(dir, "d"))
	c, _, err := Load(Flags{ConfigFile: "../base.yaml", ConfigDir: ".", Kubeconfig: "k", HostnameOverride: "node"})
	if err != nil {
		t.Fatal(err)
	}
	got := []string{c.Sources.StaticPodPath, c.Pods.ResolvConf, c.Server.TLS.ClientCAFile, c.Cluster.Kubeconfig}
	want := []string{filepath.Join(dir, "m"), filepath.Join(dir, "r"), filepath.Join(dir, "ca"),
		filepath.Join(dir, "d", "k")}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
