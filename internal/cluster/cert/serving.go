package cert

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/berth-run/berth/internal/config"
)

// ServingOptions of NewServing. Client, Addresses and AddressesChanged are needed only for TLS.Bootstrap.
type ServingOptions struct {
	TLS      config.TLS
	NodeName string
	// Client requests certificates as the node.
	Client kubernetes.Interface
	// Addresses returns the addresses of the Node object. AddressesChanged receives after they have changed.
	Addresses        func() []corev1.NodeAddress
	AddressesChanged <-chan struct{}
	Log              *slog.Logger
}

// Serving keeps the certificate of the HTTPS server.
type Serving struct {
	o    ServingOptions
	life float64
	keeper
}

// NewServing makes a Serving. It reads nothing.
func NewServing(o ServingOptions) *Serving {
	s := &Serving{o: o}
	s.keeper = keeper{
		log: o.Log.With("certificate", "serving"), files: s.files, read: s.read, want: s.want, request: s.request,
		changed: func() {},
		expired: func(*x509.Certificate) {}, wake: o.AddressesChanged, ready: make(chan struct{}),
	}
	s.open = sync.OnceFunc(func() { close(s.ready) })
	return s
}

// Load reads the files, or makes a self-signed pair. Configured files that cannot be read are an error. With
// TLS.Bootstrap there may be no certificate yet. Handshakes fail until there is one. Call Load once, before Run.
func (s *Serving) Load() error {
	var err error
	if s.life, err = life(); err != nil {
		return fmt.Errorf("choose when to renew the serving certificate: %w", err)
	}
	if s.selfSigned() {
		if _, err := loadPair(s.pair()); errors.Is(err, fs.ErrNotExist) {
			if err := s.sign(); err != nil {
				return err
			}
		}
	}
	if _, err := s.read(); err != nil {
		return err
	}
	s.reload(time.Now())
	return nil
}

// Certificate returns the current pair. It is nil before the first.
func (s *Serving) Certificate() *tls.Certificate { return s.current.Load() }

// Ready is closed when there is a certificate.
func (s *Serving) Ready() <-chan struct{} { return s.ready }

// Run keeps the certificate and loads changed files until ctx ends.
func (s *Serving) Run(ctx context.Context) error { return s.run(ctx) }

// TLSConfig returns the configuration of the HTTPS server. Each handshake uses the newest certificate. The settings
// for client certificates are left to the caller.
func (s *Serving) TLSConfig() *tls.Config {
	t := s.o.TLS
	return &tls.Config{
		MinVersion: t.MinVersion, CipherSuites: t.CipherSuites, CurvePreferences: t.Curves,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if pair := s.current.Load(); pair != nil {
				return pair, nil
			}
			return nil, errors.New("no serving certificate yet: its CertificateSigningRequest has to be approved")
		},
	}
}

func (s *Serving) selfSigned() bool { return s.o.TLS.CertFile == "" && !s.o.TLS.Bootstrap }

// pair returns the files of the operator, or of the self-signed pair.
func (s *Serving) pair() (cert, key string) {
	if t := s.o.TLS; t.CertFile != "" {
		return t.CertFile, t.KeyFile
	}
	return filepath.Join(s.o.TLS.CertDir, "kubelet.crt"), filepath.Join(s.o.TLS.CertDir, "kubelet.key")
}

func (s *Serving) stored() string {
	return filepath.Join(s.o.TLS.CertDir, serverPrefix+"-current.pem")
}

func (s *Serving) files() []string {
	var files []string
	if s.o.TLS.Bootstrap {
		files = append(files, s.stored())
	}
	if s.o.TLS.CertFile != "" || !s.o.TLS.Bootstrap {
		cert, key := s.pair()
		files = append(files, cert, key)
	}
	return files
}

func (s *Serving) read() (*tls.Certificate, error) {
	if !s.o.TLS.Bootstrap {
		return loadPair(s.pair())
	}
	var pairs []*tls.Certificate
	for _, files := range [][2]string{{s.stored(), s.stored()}, {s.o.TLS.CertFile, s.o.TLS.KeyFile}} {
		if files[0] == "" {
			continue
		}
		pair, err := loadPair(files[0], files[1])
		if err == nil {
			pairs = append(pairs, pair)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return best(pairs, time.Now()), nil
}

func (s *Serving) want(*tls.Certificate) subject {
	w := subject{Life: s.life, Rotate: true}
	switch {
	case s.o.TLS.Bootstrap:
		w.Template = servingRequest(s.o.NodeName, s.o.Addresses())
	case s.selfSigned():
		w.Template = &x509.CertificateRequest{DNSNames: []string{s.o.NodeName}}
	}
	return w
}

func (s *Serving) request(ctx context.Context) error {
	if s.selfSigned() {
		return s.sign()
	}
	template := servingRequest(s.o.NodeName, s.o.Addresses())
	if template == nil {
		return errors.New("request a serving certificate: the node has no IP address yet")
	}
	keyFile := filepath.Join(s.o.TLS.CertDir, serverPrefix+".key.tmp")
	cert, key, err := requestPair(ctx, s.o.Client, certificatesv1.KubeletServingSignerName,
		certificatesv1.UsageServerAuth,
		template, keyFile)
	if err != nil {
		return err
	}
	return storePair(serverPrefix, s.o.TLS.CertDir, cert, key, keyFile)
}

// sign makes the self-signed pair. It writes the key first. A reader that finds a certificate and a key that do not
// match keeps its current pair.
func (s *Serving) sign() error {
	certFile, keyFile := s.pair()
	cert, key, err := certutil.GenerateSelfSignedCertKey(s.o.NodeName, nil, nil)
	if err != nil {
		return fmt.Errorf("make self-signed certificate: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(keyFile), 0o755); err != nil {
		return fmt.Errorf("make directory of certificates: %w", err)
	}
	if err := errors.Join(keyutil.WriteKey(keyFile, key), certutil.WriteCert(certFile, cert)); err != nil {
		return fmt.Errorf("write self-signed certificate: %w", err)
	}
	return nil
}
