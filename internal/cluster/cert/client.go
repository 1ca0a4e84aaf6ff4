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
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/certificate"

	"github.com/berth-run/berth/internal/config"
	"github.com/berth-run/berth/internal/record/event"
)

// File name prefixes in CertDir, as the kubelet uses them.
const (
	clientPrefix = "kubelet-client"
	serverPrefix = "kubelet-server"
)

// ClientOptions of NewClient. All are required but Changed.
type ClientOptions struct {
	Cluster  *config.Cluster
	NodeName string
	Events   event.Sink
	// Changed is called after the certificate was replaced.
	Changed func()
	Log     *slog.Logger
}

// Client keeps the client certificate.
type Client struct {
	o     ClientOptions
	base  *rest.Config // without a certificate
	boot  *rest.Config // the bootstrap kubeconfig; nil: none
	life  float64
	given bool // the current pair is embedded in the kubeconfig
	keeper
}

// NewClient makes a Client. It reads nothing.
func NewClient(o ClientOptions) *Client {
	if o.Changed == nil {
		o.Changed = func() {}
	}
	c := &Client{o: o}
	c.keeper = keeper{
		log: o.Log.With("certificate", "client"), files: c.files, read: c.read, want: c.want, request: c.request,
		changed: o.Changed,
		expired: c.expired, ready: make(chan struct{}),
	}
	c.open = sync.OnceFunc(func() { close(c.ready) })
	return c
}

// Load reads the kubeconfig, or the bootstrap kubeconfig if the first is unusable. It returns how to reach the
// server, without a client certificate: see Certificate. It sends nothing. Call it once, before Run.
func (c *Client) Load() (*rest.Config, error) {
	cl := c.o.Cluster
	var err error
	if c.life, err = life(); err != nil {
		return nil, fmt.Errorf("choose when to renew the client certificate: %w", err)
	}
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
			c.log.Warn("kubeconfig is unusable, requesting a certificate and writing a new kubeconfig", "err", err)
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
	c.reload(time.Now())
	if c.current.Load() == nil && !c.manages() {
		c.open() // the kubeconfig has a token: there is no certificate to wait for
	}
	return rest.CopyConfig(c.base), nil
}

// manages reports whether the agent requests certificates at all.
func (c *Client) manages() bool { return c.o.Cluster.RotateCertificates || c.boot != nil }

// Certificate returns the newest certificate, even if it has expired. It is nil before the first.
func (c *Client) Certificate() *tls.Certificate { return c.current.Load() }

// Ready is closed when the node has credentials for the API server.
func (c *Client) Ready() <-chan struct{} { return c.ready }

// Run keeps the certificate until ctx ends.
func (c *Client) Run(ctx context.Context) error { return c.run(ctx) }

func (c *Client) stored() string {
	return filepath.Join(c.o.Cluster.CertDir, clientPrefix+"-current.pem")
}

func (c *Client) files() []string {
	files := []string{c.o.Cluster.Kubeconfig, c.stored()}
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
		add(loadPair(c.stored(), c.stored()))
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
	s := subject{Life: c.life, Rotate: c.o.Cluster.RotateCertificates, First: c.given && c.o.Cluster.RotateCertificates}
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
	pair := c.current.Load()
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
	dir := c.o.Cluster.CertDir
	keyFile := filepath.Join(dir, clientPrefix+".key.tmp")
	cert, key, err := requestPair(ctx, client, certificatesv1.KubeAPIServerClientKubeletSignerName,
		certificatesv1.UsageClientAuth, nodeRequest(c.o.NodeName), keyFile)
	if err != nil {
		return err
	}
	if err := storePair(clientPrefix, dir, cert, key, keyFile); err != nil {
		return err
	}
	if user, err := readKubeconfig(c.o.Cluster.Kubeconfig); err == nil &&
		(c.o.Cluster.RotateCertificates || user.CertFile == c.stored()) {
		return nil
	}
	return writeKubeconfig(c.o.Cluster.Kubeconfig, c.base, c.stored())
}

func (c *Client) expired(leaf *x509.Certificate) {
	c.o.Events.Event(event.NodeRef(c.o.NodeName), corev1.EventTypeWarning, "ClientCertificateExpired",
		"the client certificate expired at %s; pods keep running, and a renewed certificate is loaded automatically",
		leaf.NotAfter.UTC().Format(time.RFC3339))
}

// storePair stores a new pair where the kubelet looks for it.
func storePair(prefix, dir string, cert, key []byte, keyFile string) error {
	store, err := certificate.NewFileStore(prefix, dir, dir, "", "")
	if err == nil {
		_, err = store.Update(cert, key)
	}
	if err != nil {
		return fmt.Errorf("store certificate in %s: %w", dir, err)
	}
	return removeKey(keyFile)
}

func readKubeconfig(path string) (*rest.Config, error) {
	if _, err := os.Stat(path); err != nil {
		return nil, err
	}
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: path}
	rc, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{}).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return rc, nil
}

// writeKubeconfig writes a kubeconfig that uses the pair in a file.
func writeKubeconfig(path string, base *rest.Config, pair string) error {
	k := clientcmdapi.NewConfig()
	cluster := clientcmdapi.NewCluster()
	cluster.Server, cluster.InsecureSkipTLSVerify, cluster.TLSServerName = base.Host, base.Insecure, base.ServerName
	if cluster.CertificateAuthority = base.CAFile; base.CAFile == "" {
		cluster.CertificateAuthorityData = base.CAData
	}
	user := clientcmdapi.NewAuthInfo()
	user.ClientCertificate, user.ClientKey = pair, pair
	at := clientcmdapi.NewContext()
	at.Cluster, at.AuthInfo, at.Namespace = "default-cluster", "default-auth", "default"
	k.Clusters["default-cluster"], k.AuthInfos["default-auth"], k.Contexts["default-context"] = cluster, user, at
	k.CurrentContext = "default-context"
	next := path + ".next"
	if err := clientcmd.WriteToFile(*k, next); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	if err := os.Rename(next, path); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}
