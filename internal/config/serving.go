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
)

// Server says what is served on the network. The zero value: nothing. An agent
// of a cluster serves what a kubelet does. A standalone one has healthzPort and
// readOnlyPort only where they are set, and HTTPS only with port, a clientCAFile
// and authorization.mode AlwaysAllow: there is nobody to ask who may do what.
type Server struct {
	// HTTPS is the main address, not valid: none. Default 0.0.0.0:10250.
	HTTPS netip.AddrPort
	// ReadOnly is plain HTTP for everybody, not valid (default): none.
	ReadOnly netip.AddrPort
	// Healthz is plain HTTP, not valid: none. Default 127.0.0.1:10248.
	Healthz  netip.AddrPort
	TLS      TLS
	Auth     Auth
	Handlers Handlers
	// IdleTimeout ends exec, attach and port-forward streams on which nothing
	// moves. Default 4 h.
	IdleTimeout time.Duration
	// VolumePeriod is for how long the measured size of a volume counts
	// (volumeStatsAggPeriod). Default 1 min; less than 0: volumes are not measured.
	VolumePeriod time.Duration
}

// TLS are the settings of the HTTPS server.
type TLS struct {
	// CertFile and KeyFile are given by the operator. Empty, without Bootstrap:
	// kubelet.crt and kubelet.key in CertDir, self-signed.
	CertFile, KeyFile string
	// Bootstrap has the serving certificate from the cluster (serverTLSBootstrap).
	Bootstrap bool
	// CertDir has what the agent asks for or makes. Default RootDir/pki.
	CertDir string
	// MinVersion is tls.VersionTLS12 by default.
	MinVersion uint16
	// CipherSuites and Curves are Go's choice when they are empty.
	CipherSuites []uint16
	Curves       []tls.CurveID
	// ClientCAFile has the authorities of client certificates; empty: none is
	// asked for.
	ClientCAFile string
}

// Auth says who may do what on the HTTPS server.
type Auth struct {
	// Anonymous lets in who does not say who they are. Default false.
	Anonymous bool
	// TokenReview has the API server judge bearer tokens, kept for TokenTTL.
	// Default true, 2 min.
	TokenReview bool
	TokenTTL    time.Duration
	// AlwaysAllow asks nobody. Otherwise (default) SubjectAccessReview decides,
	// kept for AllowedTTL (5 min) or DeniedTTL (30 s).
	AlwaysAllow           bool
	AllowedTTL, DeniedTTL time.Duration
}

// Handlers are the groups of paths that are served.
type Handlers struct {
	Debugging           bool // enableDebuggingHandlers: exec, logs, ...; default true
	SystemLog           bool // /logs/, default true
	SystemLogQuery      bool // its query, default false
	Profiling           bool // /debug/pprof/, default true
	DebugFlags          bool // /debug/flags/v, default true
	ContentionProfiling bool // profiles of locks, default false
}

// listener is the part of builder that reads Server.
type listener struct{ *builder }

// serves says whether there is an HTTPS server.
func serves(kc *v1beta1.KubeletConfiguration, joined bool) bool {
	return or(kc.EnableServer, true) && (joined || kc.Port != 0 && kc.Authentication.X509.ClientCAFile != "")
}

func (b listener) server(f Flags) Server {
	kc, joined := b.kc, f.Kubeconfig != ""
	var s Server
	s.Healthz = b.port("healthzPort", b.ip("healthzBindAddress", kc.HealthzBindAddress), *kc.HealthzPort)
	ip := b.ip("address", kc.Address)
	s.ReadOnly = b.port("readOnlyPort", ip, kc.ReadOnlyPort)
	handlers := b.handlers()
	if handlers.SystemLogQuery && !handlers.SystemLog {
		b.invalid("enableSystemLogQuery", true, "needs enableSystemLogHandler: true")
	}
	idle := b.duration("streamingConnectionIdleTimeout", kc.StreamingConnectionIdleTimeout)
	tls, auth := b.tls(f), b.auth(joined)
	if !serves(kc, joined) {
		return s
	}
	s.HTTPS = b.port("port", ip, kc.Port)
	s.TLS, s.Auth, s.Handlers, s.IdleTimeout = tls, auth, handlers, idle
	s.VolumePeriod = kc.VolumeStatsAggPeriod.Duration
	if joined {
		return s
	}
	if !auth.AlwaysAllow {
		b.invalid("authorization.mode", string(kc.Authorization.Mode),
			"must be AlwaysAllow without --kubeconfig: there is no API server to ask, and who has a certificate of "+
				"authentication.x509.clientCAFile may do everything")
	}
	if kc.ServerTLSBootstrap {
		b.invalid("serverTLSBootstrap", true, "needs --kubeconfig: there is no API server that signs certificates")
	}
	return s
}

func (b listener) handlers() Handlers {
	kc := b.kc
	return Handlers{
		Debugging: *kc.EnableDebuggingHandlers, SystemLog: *kc.EnableSystemLogHandler,
		SystemLogQuery: *kc.EnableSystemLogQuery,
		Profiling:      *kc.EnableProfilingHandler, DebugFlags: *kc.EnableDebugFlagsHandler,
		ContentionProfiling: kc.EnableContentionProfiling,
	}
}

func (b listener) ip(path, text string) netip.Addr {
	ip, err := netip.ParseAddr(text)
	if err != nil {
		b.invalid(path, text, "must be an IP address")
	}
	return ip.Unmap()
}

// port makes an address that is not valid for port 0.
func (b listener) port(path string, ip netip.Addr, port int32) netip.AddrPort {
	if port < 0 || port > 65535 {
		b.invalid(path, port, "must be between 1 and 65535")
	}
	if port <= 0 || port > 65535 {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(ip, uint16(port))
}

func (b listener) tls(f Flags) TLS {
	kc := b.kc
	t := TLS{
		CertFile: kc.TLSCertFile, KeyFile: kc.TLSPrivateKeyFile, Bootstrap: kc.ServerTLSBootstrap,
		CertDir: f.CertDir, ClientCAFile: kc.Authentication.X509.ClientCAFile,
	}
	var err error
	if t.MinVersion, err = cliflag.TLSVersion(kc.TLSMinVersion); err != nil {
		b.add(field.ErrorList{field.NotSupported(field.NewPath("tlsMinVersion"), kc.TLSMinVersion,
			cliflag.TLSPossibleVersions())})
	}
	for i, name := range kc.TLSCipherSuites {
		if _, err := cliflag.TLSCipherSuites([]string{name}); err != nil {
			b.add(field.ErrorList{field.NotSupported(field.NewPath("tlsCipherSuites").Index(i), name,
				cliflag.TLSCipherPossibleValues())})
		}
	}
	t.CipherSuites, _ = cliflag.TLSCipherSuites(kc.TLSCipherSuites) // said above, one by one
	if t.Curves, err = cliflag.TLSCurvePreferences(kc.TLSCurvePreferences); err != nil {
		b.invalid("tlsCurvePreferences", kc.TLSCurvePreferences, "%v", err)
	}
	if (t.CertFile == "") != (t.KeyFile == "") {
		b.invalid("tlsCertFile", t.CertFile, "must be given together with tlsPrivateKeyFile, or not at all")
	}
	b.absolute("tlsCertFile", t.CertFile)
	b.absolute("tlsPrivateKeyFile", t.KeyFile)
	b.absolute("authentication.x509.clientCAFile", t.ClientCAFile)
	return t
}

func (b listener) auth(joined bool) Auth {
	n, z := b.kc.Authentication, b.kc.Authorization
	a := Auth{
		Anonymous:   *n.Anonymous.Enabled,
		TokenReview: *n.Webhook.Enabled,
		TokenTTL:    b.duration("authentication.webhook.cacheTTL", n.Webhook.CacheTTL),
		AlwaysAllow: z.Mode == v1beta1.KubeletAuthorizationModeAlwaysAllow,
		AllowedTTL:  b.duration("authorization.webhook.cacheAuthorizedTTL", z.Webhook.CacheAuthorizedTTL),
		DeniedTTL:   b.duration("authorization.webhook.cacheUnauthorizedTTL", z.Webhook.CacheUnauthorizedTTL),
	}
	modes := []v1beta1.KubeletAuthorizationMode{v1beta1.KubeletAuthorizationModeAlwaysAllow,
		v1beta1.KubeletAuthorizationModeWebhook}
	if z.Mode != "" && !slices.Contains(modes, z.Mode) {
		b.add(field.ErrorList{field.NotSupported(field.NewPath("authorization.mode"), z.Mode, modes)})
	}
	if a.TokenReview && !joined && serves(b.kc, joined) {
		b.invalid("authentication.webhook.enabled", true,
			"needs --kubeconfig: there is no API server that judges tokens")
	}
	return a
}

// weakTLS warns of settings that are taken and do less than they seem to.
func weakTLS(kc *v1beta1.KubeletConfiguration, origin map[string]string) []Warning {
	var all []Warning
	for _, name := range kc.TLSCipherSuites {
		if slices.Contains(cliflag.InsecureTLSCipherNames(), name) {
			all = append(all,
				Warning{Origin: origin["tlsCipherSuites"], Field: "tlsCipherSuites", Text: name + " is insecure"})
		}
	}
	if len(kc.TLSCipherSuites) > 0 && kc.TLSMinVersion == "VersionTLS13" {
		all = append(all,
			Warning{Origin: origin["tlsCipherSuites"], Field: "tlsCipherSuites",
				Text: "changes nothing: those of TLS 1.3 cannot be chosen"})
	}
	return all
}

// certDir is where certificates are kept.
func certDir(f Flags) string {
	return filepath.Clean(cmp.Or(f.CertDir, filepath.Join(f.RootDir, "pki")))
}
