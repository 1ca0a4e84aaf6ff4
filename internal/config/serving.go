package config

import (
	"cmp"
	"crypto/tls"
	"net/netip"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"
)

// Server configures the network servers. The zero value opens no port. A node of a cluster opens the kubelet's ports.
// A standalone agent opens healthzPort and readOnlyPort only if they are set. It opens the HTTPS port only with port,
// a clientCAFile and authorization.mode AlwaysAllow, because it has no API server that could authorize requests.
type Server struct {
	// HTTPS is the main address. An invalid address means none. Default 0.0.0.0:10250.
	HTTPS netip.AddrPort
	// ReadOnly serves plain HTTP without authentication. It is invalid by default, which means none.
	ReadOnly netip.AddrPort
	// Healthz serves plain HTTP. An invalid address means none. Default 127.0.0.1:10248.
	Healthz  netip.AddrPort
	TLS      TLS
	Auth     Auth
	Handlers Handlers
	// IdleTimeout ends exec, attach and port-forward streams without traffic. Default 4 h.
	IdleTimeout time.Duration
	// VolumePeriod is how long the measured size of a volume is reused (volumeStatsAggPeriod). Default 1 min. If it
	// is negative, volumes are not measured.
	VolumePeriod time.Duration
}

// TLS configures the HTTPS server's certificates and protocol.
type TLS struct {
	// CertFile and KeyFile are the operator's. If they are empty and Bootstrap is off, the server uses a self-signed
	// kubelet.crt and kubelet.key in CertDir.
	CertFile, KeyFile string
	// Bootstrap requests the serving certificate from the cluster (serverTLSBootstrap).
	Bootstrap bool
	// CertDir holds the certificates that the agent requests or makes. Default RootDir/pki.
	CertDir string
	// MinVersion is tls.VersionTLS12 by default.
	MinVersion uint16
	// CipherSuites and Curves are Go's defaults if they are empty.
	CipherSuites []uint16
	Curves       []tls.CurveID
	// ClientCAFile holds the authorities of client certificates. If it is empty, the server requests none.
	ClientCAFile string
}

// Auth configures authentication and authorization on the HTTPS server.
type Auth struct {
	// Anonymous accepts requests without credentials. Default false.
	Anonymous bool
	// TokenReview lets the API server verify bearer tokens. Results are cached for TokenTTL. Default true, 2 min.
	TokenReview bool
	TokenTTL    time.Duration
	// AlwaysAllow authorizes every authenticated request. Otherwise (default) SubjectAccessReview decides, and
	// results are cached for AllowedTTL (5 min) or DeniedTTL (30 s).
	AlwaysAllow           bool
	AllowedTTL, DeniedTTL time.Duration
}

// Handlers turns groups of paths on or off.
type Handlers struct {
	Debugging           bool // enableDebuggingHandlers: exec, logs, ...; default true
	SystemLog           bool // /logs/, default true
	SystemLogQuery      bool // its query, default false
	Profiling           bool // /debug/pprof/, default true
	DebugFlags          bool // /debug/flags/v, default true
	ContentionProfiling bool // profiles of lock contention, default false
}

// serves reports whether there is an HTTPS server.
func serves(kc *v1beta1.KubeletConfiguration, joined bool) bool {
	return ptr.Deref(kc.EnableServer, true) && (joined || kc.Port != 0 && kc.Authentication.X509.ClientCAFile != "")
}

func readServer(in *input, f Flags) Server {
	kc, joined := in.kc, f.Kubeconfig != ""
	var s Server
	s.Healthz = in.Port("healthzPort", in.IP("healthzBindAddress", kc.HealthzBindAddress), *kc.HealthzPort)
	ip := in.IP("address", kc.Address)
	s.ReadOnly = in.Port("readOnlyPort", ip, kc.ReadOnlyPort)
	handlers := readHandlers(in)
	if handlers.SystemLogQuery && !handlers.SystemLog {
		in.Invalid("enableSystemLogQuery", true, "needs enableSystemLogHandler: true")
	}
	idle := in.Duration("streamingConnectionIdleTimeout", kc.StreamingConnectionIdleTimeout)
	tls, auth := readTLS(in, f), readAuth(in, joined)
	if !serves(kc, joined) {
		return s
	}
	s.HTTPS = in.Port("port", ip, kc.Port)
	s.TLS, s.Auth, s.Handlers, s.IdleTimeout = tls, auth, handlers, idle
	s.VolumePeriod = kc.VolumeStatsAggPeriod.Duration
	if joined {
		return s
	}
	if !auth.AlwaysAllow {
		in.Invalid("authorization.mode", string(kc.Authorization.Mode),
			"must be AlwaysAllow without --kubeconfig: there is no API server to ask, and any client with a "+
				"certificate of "+
				"authentication.x509.clientCAFile may do everything")
	}
	if kc.ServerTLSBootstrap {
		in.Invalid("serverTLSBootstrap", true, "needs --kubeconfig: there is no API server that signs certificates")
	}
	return s
}

func readHandlers(in *input) Handlers {
	kc := in.kc
	return Handlers{
		Debugging: *kc.EnableDebuggingHandlers, SystemLog: *kc.EnableSystemLogHandler,
		SystemLogQuery: *kc.EnableSystemLogQuery,
		Profiling:      *kc.EnableProfilingHandler, DebugFlags: *kc.EnableDebugFlagsHandler,
		ContentionProfiling: kc.EnableContentionProfiling,
	}
}

func readTLS(in *input, f Flags) TLS {
	kc := in.kc
	t := TLS{
		CertFile: kc.TLSCertFile, KeyFile: kc.TLSPrivateKeyFile, Bootstrap: kc.ServerTLSBootstrap,
		CertDir: f.CertDir, ClientCAFile: kc.Authentication.X509.ClientCAFile,
	}
	var err error
	if t.MinVersion, err = cliflag.TLSVersion(kc.TLSMinVersion); err != nil {
		in.Add(field.ErrorList{field.NotSupported(field.NewPath("tlsMinVersion"), kc.TLSMinVersion,
			cliflag.TLSPossibleVersions())})
	}
	for i, name := range kc.TLSCipherSuites {
		if _, err := cliflag.TLSCipherSuites([]string{name}); err != nil {
			in.Add(field.ErrorList{field.NotSupported(field.NewPath("tlsCipherSuites").Index(i), name,
				cliflag.TLSCipherPossibleValues())})
		}
	}
	t.CipherSuites, _ = cliflag.TLSCipherSuites(kc.TLSCipherSuites) // errors were added above, for each name
	if t.Curves, err = cliflag.TLSCurvePreferences(kc.TLSCurvePreferences); err != nil {
		in.Invalid("tlsCurvePreferences", kc.TLSCurvePreferences, "%v", err)
	}
	if (t.CertFile == "") != (t.KeyFile == "") {
		in.Invalid("tlsCertFile", t.CertFile, "must be given together with tlsPrivateKeyFile, or not at all")
	}
	in.Absolute("tlsCertFile", t.CertFile)
	in.Absolute("tlsPrivateKeyFile", t.KeyFile)
	in.Absolute("authentication.x509.clientCAFile", t.ClientCAFile)
	return t
}

func readAuth(in *input, joined bool) Auth {
	n, z := in.kc.Authentication, in.kc.Authorization
	a := Auth{
		Anonymous:   *n.Anonymous.Enabled,
		TokenReview: *n.Webhook.Enabled,
		TokenTTL:    in.Duration("authentication.webhook.cacheTTL", n.Webhook.CacheTTL),
		AlwaysAllow: z.Mode == v1beta1.KubeletAuthorizationModeAlwaysAllow,
		AllowedTTL:  in.Duration("authorization.webhook.cacheAuthorizedTTL", z.Webhook.CacheAuthorizedTTL),
		DeniedTTL:   in.Duration("authorization.webhook.cacheUnauthorizedTTL", z.Webhook.CacheUnauthorizedTTL),
	}
	modes := []v1beta1.KubeletAuthorizationMode{v1beta1.KubeletAuthorizationModeAlwaysAllow,
		v1beta1.KubeletAuthorizationModeWebhook}
	if z.Mode != "" && !slices.Contains(modes, z.Mode) {
		in.Add(field.ErrorList{field.NotSupported(field.NewPath("authorization.mode"), z.Mode, modes)})
	}
	if a.TokenReview && !joined && serves(in.kc, joined) {
		in.Invalid("authentication.webhook.enabled", true,
			"needs --kubeconfig: there is no API server that judges tokens")
	}
	return a
}

// certDir returns the directory of the certificates.
func certDir(f Flags) string {
	return filepath.Clean(cmp.Or(f.CertDir, filepath.Join(f.RootDir, "pki")))
}
