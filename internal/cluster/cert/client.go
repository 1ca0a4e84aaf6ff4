package cert

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/record/event"
)

// ClientOptions of NewClient. All are required.
type ClientOptions struct {
	Cluster  *config.Cluster
	NodeName string
	Events   event.Sink
	Log      *slog.Logger
}

// Client is the client certificate of the node.
type Client struct {
	o      ClientOptions
	base   *rest.Config // without a certificate
	boot   *rest.Config // the bootstrap kubeconfig; nil: none
	given  bool         // the current pair is embedded in the kubeconfig
	issued issued
	keeper *keeper
}

// NewClient makes a Client. It reads nothing.
func NewClient(o ClientOptions) *Client {
	c := &Client{o: o, issued: issued{
		dir: o.Cluster.CertDir, prefix: "kubelet-client",
		signer: certificatesv1.KubeAPIServerClientKubeletSignerName, usage: certificatesv1.UsageClientAuth,
	}}
	c.keeper = newKeeper(c, o.Log.With("certificate", "client"), nil)
	return c
}

// Load reads the kubeconfig, or the bootstrap kubeconfig if the first is unusable. It returns how to reach the
// server, without a client certificate: see Certificate. It sends nothing. Call it once, before Run.
func (c *Client) Load() (*rest.Config, error) {
	cl := c.o.Cluster
	user, err := readKubeconfig(cl.Kubeconfig)
	if cl.BootstrapKubeconfig != "" {
		boot, bootErr := readKubeconfig(cl.BootstrapKubeconfig)
		switch {
		case bootErr == nil:
			c.boot = boot
		case err != nil:
			return nil, fmt.Errorf("read --kubeconfig: %w; read --bootstrap-kubeconfig: %w", err, bootErr)
		case !errors.Is(bootErr, fs.ErrNotExist): // it may be deleted after the first certificate
			return nil, fmt.Errorf("read --bootstrap-kubeconfig: %w", bootErr)
		}
	}
	switch {
	case err == nil:
		c.base = user
	case c.boot != nil:
		c.base = rest.AnonymousClientConfig(c.boot)
		if !errors.Is(err, fs.ErrNotExist) {
			c.o.Log.Warn("kubeconfig is unusable, requesting a certificate and writing a new kubeconfig", "err", err)
		}
	default:
		return nil,
			fmt.Errorf(
				"read --kubeconfig: %w; next: give the kubeconfig of this node, or --bootstrap-kubeconfig to "+
					"request one",
				err)
	}
	c.base = rest.CopyConfig(c.base)
	t := &c.base.TLSClientConfig
	t.CertFile, t.KeyFile, t.CertData, t.KeyData = "", "", nil, nil
	c.keeper.reload(time.Now())
	if c.keeper.current.Load() == nil && !c.manages() {
		c.keeper.open() // the kubeconfig has a token: there is no certificate to wait for
	}
	return rest.CopyConfig(c.base), nil
}

// manages reports whether the agent requests certificates at all.
func (c *Client) manages() bool { return c.o.Cluster.RotateCertificates || c.boot != nil }

// Certificate returns the newest certificate, even if it has expired. It is nil before the first.
func (c *Client) Certificate() *tls.Certificate { return c.keeper.current.Load() }

// Ready is closed when the node has credentials for the API server.
func (c *Client) Ready() <-chan struct{} { return c.keeper.ready }

// Replaced receives after another certificate has replaced one. Connections still use the earlier one.
func (c *Client) Replaced() <-chan struct{} { return c.keeper.replaced.C() }

// Failures returns how many requests of this process for a client certificate have failed.
func (c *Client) Failures() uint64 { return c.keeper.failures.Load() }

// Run keeps the certificate until ctx ends.
func (c *Client) Run(ctx context.Context) error { return c.keeper.run(ctx) }

func (c *Client) files() []string {
	files := []string{c.o.Cluster.Kubeconfig, c.issued.file()}
	if user, err := readKubeconfig(c.o.Cluster.Kubeconfig); err == nil && user.CertFile != "" {
		files = append(files, user.CertFile, user.KeyFile)
	}
	return files
}

// read looks for a pair in CertDir and in the kubeconfig. A requested pair comes first if certificates are rotated,
// or if there is no kubeconfig yet.
func (c *Client) read() (*tls.Certificate, error) {
	user, err := readKubeconfig(c.o.Cluster.Kubeconfig)
	var pairs []*tls.Certificate
	var errs []error
	add := func(pair *tls.Certificate, err error) {
		switch {
		case err == nil:
			pairs = append(pairs, pair)
		case !errors.Is(err, fs.ErrNotExist):
			errs = append(errs, err)
		}
	}
	c.given = false
	if c.o.Cluster.RotateCertificates || err != nil {
		add(loadPair(c.issued.file(), c.issued.file()))
	}
	var embedded *tls.Certificate
	switch {
	case err != nil:
	case len(user.CertData) > 0:
		pair, err := tls.X509KeyPair(user.CertData, user.KeyData)
		if err != nil {
			errs = append(errs, fmt.Errorf("read client certificate in %s: %w", c.o.Cluster.Kubeconfig, err))
			break
		}
		embedded = &pair
		add(embedded, nil)
	case user.CertFile != "":
		add(loadPair(user.CertFile, user.KeyFile))
	}
	pair := best(pairs, time.Now())
	if pair == nil {
		return nil, errors.Join(errs...)
	}
	c.given = pair == embedded
	return pair, nil
}

func (c *Client) want(pair *tls.Certificate) subject {
	s := subject{Rotate: c.o.Cluster.RotateCertificates, First: c.given && c.o.Cluster.RotateCertificates}
	if c.client(pair) != nil && c.manages() {
		s.Template = nodeRequest(c.o.NodeName)
	}
	if pair != nil && !s.Rotate && s.Template != nil {
		s.Template.Subject.CommonName = pair.Leaf.Subject.CommonName // keep the operator's name
	}
	return s
}

// client returns the configuration for a request: with the current pair while it is valid, otherwise the bootstrap
// kubeconfig. nil means that no request is possible.
func (c *Client) client(pair *tls.Certificate) *rest.Config {
	if pair == nil || !time.Now().Before(pair.Leaf.NotAfter) {
		return c.boot
	}
	return c.base
}

func (c *Client) request(ctx context.Context) error {
	pair := c.keeper.current.Load()
	from := c.client(pair)
	rc := rest.CopyConfig(from)
	if from == c.base {
		var err error
		if rc.CertData, rc.KeyData, err = encode(pair); err != nil {
			return err
		}
		// The API server rejects an expired certificate. A request that still waits for its signature then continues
		// with the bootstrap kubeconfig.
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, pair.Leaf.NotAfter)
		defer cancel()
	}
	rc.QPS = -1
	http, err := rest.HTTPClientFor(rc)
	if err != nil {
		return fmt.Errorf("make client to request a certificate: %w", err)
	}
	defer utilnet.CloseIdleConnectionsFor(http.Transport)
	client, err := kubernetes.NewForConfigAndClient(rc, http)
	if err != nil {
		return fmt.Errorf("make client to request a certificate: %w", err)
	}
	if err := c.issued.renew(ctx, client, nodeRequest(c.o.NodeName)); err != nil {
		return err
	}
	if user, err := readKubeconfig(c.o.Cluster.Kubeconfig); err == nil &&
		(c.o.Cluster.RotateCertificates || user.CertFile == c.issued.file()) {
		return nil
	}
	return writeKubeconfig(c.o.Cluster.Kubeconfig, c.base, c.issued.file())
}

func (c *Client) expired(leaf *x509.Certificate) {
	c.o.Events.Event(event.NodeRef(c.o.NodeName), corev1.EventTypeWarning, "ClientCertificateExpired",
		"the client certificate expired at %s; pods keep running, and a renewed certificate is loaded automatically",
		leaf.NotAfter.UTC().Format(time.RFC3339))
}
