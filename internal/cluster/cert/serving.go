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
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/berth-run/berth/internal/config"
)

// ServingOptions of NewServing. Client, Node and AddressesChanged are needed only for TLS.Bootstrap.
type ServingOptions struct {
	TLS      config.TLS
	NodeName string
	// Client requests certificates as the node.
	Client kubernetes.Interface
	// Once means that the files of the operator are read only at the start.
	Once bool
	// Node has the addresses that a requested certificate is for. AddressesChanged receives after they have changed.
	Node             Node
	AddressesChanged <-chan struct{}
	Log              *slog.Logger
}

// Node has the addresses that clients use for this node.
type Node interface {
	Addresses() []corev1.NodeAddress
}

// Serving is the certificate of the HTTPS server.
type Serving struct {
	o      ServingOptions
	issued issued
	keeper *keeper
}

// NewServing makes a Serving. It reads nothing.
func NewServing(o ServingOptions) *Serving {
	s := &Serving{o: o, issued: issued{
		dir: o.TLS.CertDir, prefix: "kubelet-server",
		signer: certificatesv1.KubeletServingSignerName, usage: certificatesv1.UsageServerAuth,
	}}
	s.keeper = newKeeper(s, o.Log.With("certificate", "serving"), o.AddressesChanged)
	return s
}

// Load reads the files, or makes a self-signed pair. Configured files that cannot be read are an error. With
// TLS.Bootstrap there may be no certificate yet. Handshakes fail until there is one. Call Load once, before Run.
func (s *Serving) Load() error {
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
	s.keeper.reload(time.Now())
	return nil
}

// Certificate returns the current pair. It is nil before the first.
func (s *Serving) Certificate() *tls.Certificate { return s.keeper.current.Load() }

// Ready is closed when there is a certificate.
func (s *Serving) Ready() <-chan struct{} { return s.keeper.ready }

// Failures returns how many requests of this process for a serving certificate have failed.
func (s *Serving) Failures() uint64 { return s.keeper.failures.Load() }

// Run keeps the certificate and loads changed files until ctx ends.
func (s *Serving) Run(ctx context.Context) error { return s.keeper.run(ctx) }

// TLSConfig returns the configuration of the HTTPS server. Each handshake uses the newest certificate. The settings
// for client certificates are left to the caller.
func (s *Serving) TLSConfig() *tls.Config {
	t := s.o.TLS
	return &tls.Config{
		MinVersion: t.MinVersion, CipherSuites: t.CipherSuites, CurvePreferences: t.Curves,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if pair := s.Certificate(); pair != nil {
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

func (s *Serving) files() []string {
	var files []string
	if s.o.TLS.Bootstrap {
		files = append(files, s.issued.file())
	}
	if s.o.TLS.CertFile != "" || !s.o.TLS.Bootstrap {
		cert, key := s.pair()
		files = append(files, cert, key)
	}
	return files
}

func (s *Serving) read() (*tls.Certificate, error) {
	if !s.o.TLS.Bootstrap {
		if pair := s.Certificate(); pair != nil && s.o.Once && !s.selfSigned() {
			return pair, nil
		}
		return loadPair(s.pair())
	}
	var pairs []*tls.Certificate
	for _, files := range [][2]string{{s.issued.file(), s.issued.file()}, {s.o.TLS.CertFile, s.o.TLS.KeyFile}} {
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
	w := subject{Rotate: true}
	switch {
	case s.o.TLS.Bootstrap:
		w.Template = servingRequest(s.o.NodeName, s.o.Node.Addresses())
	case s.selfSigned():
		w.Template = &x509.CertificateRequest{DNSNames: []string{s.o.NodeName}}
	}
	return w
}

func (s *Serving) request(ctx context.Context) error {
	if s.selfSigned() {
		return s.sign()
	}
	template := servingRequest(s.o.NodeName, s.o.Node.Addresses())
	if template == nil {
		return errors.New("request a serving certificate: the node has no IP address yet")
	}
	return s.issued.renew(ctx, s.o.Client, template)
}

// expired does nothing: the clients of the server notice that its certificate has expired.
func (s *Serving) expired(*x509.Certificate) {}

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
