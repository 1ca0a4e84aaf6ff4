package podcert

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/base/wake"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/record/event"
)

type requests interface {
	// CertificateRequest returns a request of this node. It is nil if the API server does not list it, or has not
	// answered yet.
	CertificateRequest(namespace, name string) *certificatesv1beta1.PodCertificateRequest
}

type accounts interface {
	// Account returns a service account of a pod of this node.
	Account(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error)
}

type changes interface {
	// AddAll adds the keys of objects that have changed. It does not block.
	AddAll(keys map[object.Key]bool)
}

// Config of Certificates. All fields are required.
type Config struct {
	Client   kubernetes.Interface
	Requests requests
	Accounts accounts
	// Nodes has the Node object of this node, named NodeName.
	Nodes    *store.Table[string, *corev1.Node]
	NodeName string
	// Changed collects object.CertificatesOf of the pods whose files must be made again.
	Changed changes
	// RequestsChanged makes Run look at the requests of this node, because one of them has changed. Files raises it
	// too.
	RequestsChanged wake.Signal
	Events          event.Sink
	Log             *slog.Logger
}

// Certificates are the certificates of the pods of this node. Make it with New, then call Run.
type Certificates struct {
	cfg Config
	// creating limits how many keys are made and requests are sent at the same time.
	creating chan struct{}

	mu      sync.Mutex
	entries map[source]*entry
}

// source names one podCertificate source.
type source struct {
	pod    types.UID
	volume string
	index  int
}

// entry is one source of a volume. Certificates.mu guards the fields that change.
type entry struct {
	pod  *corev1.Pod
	want *corev1.PodCertificateProjection

	state state
	// busy means that a request is being created.
	busy bool
	// err is why the last try to create a request failed. failures counts the tries since the last success, and retry
	// is the time of the next one.
	err      error
	failures int
	retry    time.Time
}

// createsAtOnce limits the requests that are created at the same time. An RSA key takes a second of CPU time.
const createsAtOnce = 2

// New makes Certificates without any. It does no I/O.
func New(c Config) *Certificates {
	return &Certificates{cfg: c, creating: make(chan struct{}, createsAtOnce),
		entries: map[source]*entry{}}
}

// Files returns the files of a podCertificate source of a volume, by path. It does no I/O: the first call makes Run
// request a certificate. Until there is one, the error is an *object.Lacking of object.CertificatesOf(p).
func (c *Certificates) Files(p *corev1.Pod, v *corev1.Volume, index int) (map[string][]byte, error) {
	want := v.Projected.Sources[index].PodCertificate
	c.mu.Lock()
	defer c.mu.Unlock()
	at := source{p.UID, v.Name, index}
	e := c.entries[at]
	if e == nil {
		e = &entry{pod: p, want: want}
		c.entries[at] = e
		c.cfg.RequestsChanged.Wake()
	}
	if err := e.lacks(); err != nil {
		return nil, &object.Lacking{Key: object.CertificatesOf(p), Err: err}
	}
	key, chain := e.state.current.key, e.state.current.chain
	files := map[string][]byte{}
	for path, parts := range map[string][][]byte{
		want.CredentialBundlePath: {key, chain}, want.KeyPath: {key}, want.CertificateChainPath: {chain},
	} {
		for _, part := range parts {
			if path != "" {
				files[path] = append(files[path], part...)
			}
		}
	}
	return files, nil
}

// lacks returns why there are no files, or nil.
func (e *entry) lacks() error {
	s, signer := e.state, e.want.SignerName
	switch {
	case s.refused != nil:
		return s.refused
	case s.current != nil:
		return nil
	case s.pending != nil:
		return fmt.Errorf("waiting for the signer %s to answer PodCertificateRequest %s/%s", signer, e.pod.Namespace,
			s.pending.name)
	case e.err != nil:
		return fmt.Errorf("request a certificate of the signer %s: %w", signer, e.err)
	}
	return fmt.Errorf("waiting for a certificate of the signer %s", signer)
}

// Forget drops the keys and certificates of a pod that has ended.
func (c *Certificates) Forget(pod types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for at := range c.entries {
		if at.pod == pod {
			delete(c.entries, at)
		}
	}
}
