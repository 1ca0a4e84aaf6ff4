package kubeapitest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// startup limits the start of a server on a busy machine. On an idle one it takes seconds.
const startup = 3 * time.Minute

// servers holds the processes of one control plane and their files.
type servers struct {
	options Options
	program string
	dir     string
	ca      *authority
	nursery *nursery
	proxy   *proxy
	ports   struct{ etcd, peer, api port }
	etcd    *process
	api     *process
	// controllers and scheduler are nil unless the options select them.
	controllers, scheduler *process

	nodes     string // the URL for nodes
	admin     *rest.Config
	adminFile string
	names     atomic.Int64 // the number of names given out
	released  []func()
}

// name returns a unique name.
func (s *servers) name(base string) string {
	return base + "-" + strconv.FormatInt(s.names.Add(1), 10)
}

// up starts a control plane. If that fails, it ends what it has started.
func up(ctx context.Context, o Options) (_ *servers, err error) {
	s := &servers{options: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.program, err = program(); err != nil {
		return nil, err
	}
	if s.dir, err = newDir(); err != nil {
		return nil, err
	}
	for _, p := range []*port{&s.ports.etcd, &s.ports.peer, &s.ports.api} {
		if *p, err = reserve(); err != nil {
			return nil, err
		}
		s.released = append(s.released, p.close)
	}
	if err := s.keys(); err != nil {
		return nil, fmt.Errorf("make certificates: %w", err)
	}
	s.nursery = newNursery()
	client, peer := "http://"+s.ports.etcd.address(), "http://"+s.ports.peer.address()
	s.etcd, err = s.nursery.run(s.program, s.dir, "etcd", "--name", "etcd", "--data-dir", filepath.Join(s.dir, "etcd"),
		"--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
		"--initial-advertise-peer-urls", peer, "--initial-cluster", "etcd="+peer,
		"--socket-reuse-port", "--unsafe-no-fsync", "--log-level", "warn")
	if err != nil {
		return nil, err
	}
	if err := s.startAPI(ctx); err != nil {
		return nil, err
	}
	if err := s.grant(ctx); err != nil {
		return nil, err
	}
	return s, s.startOthers()
}

// keys makes the certificates and keys of the servers, and the proxy.
func (s *servers) keys() error {
	var err error
	if s.ca, err = newAuthority("kubernetes"); err != nil {
		return err
	}
	frontCA, err := newAuthority("front-proxy")
	if err != nil {
		return err
	}
	serving, err := s.ca.server(pkix.Name{CommonName: "kube-apiserver"}, "127.0.0.1", "localhost", "10.96.0.1",
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
	if err != nil {
		return err
	}
	front, err := frontCA.client(Identity{User: "front-proxy"})
	if err != nil {
		return err
	}
	nodes, err := s.ca.client(Identity{User: kubeletClient, Groups: []string{kubeletClient}})
	if err != nil {
		return err
	}
	tokens, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	tokensPEM, err := keyPEM(tokens)
	if err != nil {
		return err
	}
	authorityKey, err := keyPEM(s.ca.key)
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{"ca.crt": s.ca.pem, "ca.key": authorityKey, "front-ca.crt": frontCA.pem,
		"sa.key": tokensPEM} {
		if err := os.WriteFile(filepath.Join(s.dir, name), text, 0o600); err != nil {
			return err
		}
	}
	if err := errors.Join(serving.write(filepath.Join(s.dir, "apiserver")),
		nodes.write(filepath.Join(s.dir, "kubelet-client"))); err != nil {
		return err
	}
	if s.proxy, err = newProxy(s.ports.api.address(), trust{serving: serving, front: front, ca: s.ca.pem}); err != nil {
		return err
	}
	s.proxy.start()
	s.nodes = "https://" + s.proxy.listener.Addr().String()
	return s.administrator("https://" + s.ports.api.address())
}

// administrator makes the administrator's configuration for the API server at that URL.
func (s *servers) administrator(api string) error {
	var err error
	s.admin, err = s.config(api, Identity{User: "admin", Groups: []string{"system:masters"}})
	if err == nil {
		s.adminFile, err = s.file("admin", s.admin)
	}
	return err
}

// startAPI starts kube-apiserver and waits until it is ready.
func (s *servers) startAPI(ctx context.Context) error {
	in := func(name string) string { return filepath.Join(s.dir, name) }
	flags := []string{
		"--etcd-servers", "http://" + s.ports.etcd.address(),
		"--bind-address", "127.0.0.1", "--secure-port", s.ports.api.String(), "--permit-port-sharing",
		"--advertise-address", "127.0.0.1", "--endpoint-reconciler-type", "none", // no pod asks for loopback
		"--tls-cert-file", in("apiserver.crt"), "--tls-private-key-file", in("apiserver.key"),
		"--client-ca-file", in("ca.crt"), "--enable-bootstrap-token-auth",
		"--requestheader-client-ca-file", in("front-ca.crt"), "--requestheader-allowed-names", "front-proxy",
		"--requestheader-username-headers", "X-Remote-User", "--requestheader-group-headers", "X-Remote-Group",
		"--kubelet-certificate-authority", in("ca.crt"),
		"--kubelet-client-certificate", in("kubelet-client.crt"), "--kubelet-client-key", in("kubelet-client.key"),
		"--kubelet-preferred-address-types", "InternalIP,Hostname",
		"--service-account-issuer", "https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file", in("sa.key"), "--service-account-signing-key-file", in("sa.key"),
		"--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction",
		"--service-cluster-ip-range", "10.96.0.0/16", "--allow-privileged",
		"--feature-gates", "ClusterTrustBundle=true,ClusterTrustBundleProjection=true,PodCertificateRequest=true",
		"--runtime-config", "certificates.k8s.io/v1beta1/clustertrustbundles=true," +
			"certificates.k8s.io/v1beta1/podcertificaterequests=true",
	}
	var err error
	if s.api, err = s.nursery.run(s.program, s.dir, "kube-apiserver",
		append(flags, s.options.APIServer...)...); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(s.admin)
	if err != nil {
		return err
	}
	return s.api.answers(ctx, func() error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

// startOthers starts the optional servers.
func (s *servers) startOthers() error {
	common := []string{"--kubeconfig", s.adminFile, "--leader-elect=false", "--secure-port", "0"}
	if s.options.Controllers {
		key := func(name string) string { return filepath.Join(s.dir, name) }
		flags := append(slices.Clone(common), "--controllers", "*,bootstrapsigner,tokencleaner",
			"--service-account-private-key-file", key("sa.key"), "--root-ca-file", key("ca.crt"),
			"--flex-volume-plugin-dir", key("flex"), // the controller manager creates this directory
			"--cluster-signing-cert-file", key("ca.crt"), "--cluster-signing-key-file", key("ca.key"))
		var err error
		if s.controllers, err = s.nursery.run(s.program, s.dir, "kube-controller-manager",
			append(flags, s.options.ControllerManager...)...); err != nil {
			return err
		}
	}
	if s.options.Scheduler {
		var err error
		if s.scheduler, err = s.nursery.run(s.program, s.dir, "kube-scheduler", common...); err != nil {
			return err
		}
	}
	return nil
}

// controlled waits until the controllers work. kube-controller-manager ends if it starts while the API server is away
// for 10 s, and does without it for any time after that.
func (s *servers) controlled(ctx context.Context) error {
	if s.controllers == nil {
		return nil
	}
	client, err := kubernetes.NewForConfig(s.admin)
	if err != nil {
		return err
	}
	return s.controllers.answers(ctx, func() error {
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// answers waits until try succeeds. It fails if the process has ended.
func (p *process) answers(ctx context.Context, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, startup)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w; it said:\n%s", p.name, err, p.lastOutput())
		case <-p.over:
			return fmt.Errorf("%s ended: %w; it said:\n%s", p.name, err, p.lastOutput())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// close ends the processes and removes the directory. It fails if a process ended before that without a kill.
func (s *servers) close() error {
	var errs []error
	if s.proxy != nil {
		s.proxy.close()
	}
	for _, p := range []*process{s.scheduler, s.controllers, s.api, s.etcd} {
		if p != nil {
			errs = append(errs, p.unexpected(), p.kill())
		}
	}
	if s.nursery != nil {
		s.nursery.close()
	}
	for _, release := range s.released {
		release()
	}
	if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}
