package podcerttest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/url"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Names of signers. Each has its own answer.
const (
	Issues = "example.com/issues"
	Denies = "example.com/denies"
	Fails  = "example.com/fails"
)

// Life is how long a certificate is valid. The API server accepts no shorter one.
const Life = time.Hour

// Signer is a certificate authority.
type Signer struct {
	key  *ecdsa.PrivateKey
	root *x509.Certificate
}

// New makes a Signer with an authority of its own.
func New() (*Signer, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make the key of the authority: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test signer"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("sign the certificate of the authority: %w", err)
	}
	root, err := x509.ParseCertificate(der)
	return &Signer{key, root}, err
}

// Run answers all requests for the named signers until ctx ends.
func (s *Signer) Run(ctx context.Context, client kubernetes.Interface) error {
	for ctx.Err() == nil {
		w, err := client.CertificatesV1beta1().PodCertificateRequests(metav1.NamespaceAll).Watch(ctx,
			metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("watch PodCertificateRequests: %w", err)
		}
		for e := range w.ResultChan() {
			r, ok := e.Object.(*certificatesv1beta1.PodCertificateRequest)
			if !ok || len(r.Status.Conditions) > 0 {
				continue
			}
			if err := s.answer(ctx, client, r.DeepCopy()); err != nil {
				w.Stop()
				return err
			}
		}
	}
	return nil
}

func (s *Signer) answer(ctx context.Context, client kubernetes.Interface,
	r *certificatesv1beta1.PodCertificateRequest) error {
	condition := metav1.Condition{Status: metav1.ConditionTrue, LastTransitionTime: metav1.Now()}
	switch r.Spec.SignerName {
	case Issues:
		condition.Type, condition.Reason = certificatesv1beta1.PodCertificateRequestConditionTypeIssued, "Signed"
		if err := s.issue(r); err != nil {
			return err
		}
	case Denies:
		condition.Type = certificatesv1beta1.PodCertificateRequestConditionTypeDenied
		condition.Reason, condition.Message = "UnsupportedKeyType", "use ED25519"
	case Fails:
		condition.Type = certificatesv1beta1.PodCertificateRequestConditionTypeFailed
		condition.Reason, condition.Message = "Broken", "the authority is away"
	default:
		return nil
	}
	r.Status.Conditions = []metav1.Condition{condition}
	_, err := client.CertificatesV1beta1().PodCertificateRequests(r.Namespace).UpdateStatus(ctx, r,
		metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("answer PodCertificateRequest %s/%s: %w", r.Namespace, r.Name, err)
	}
	return nil
}

// issue signs a certificate for the pod of a request. The chain has text around its certificates, which the agent must
// remove.
func (s *Signer) issue(r *certificatesv1beta1.PodCertificateRequest) error {
	request, err := x509.ParseCertificateRequest(r.Spec.StubPKCS10Request)
	if err != nil {
		return fmt.Errorf("read the key of PodCertificateRequest %s/%s: %w", r.Namespace, r.Name, err)
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return err
	}
	begin := time.Now().Add(-time.Minute).Truncate(time.Second)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: serial,
		NotBefore: begin, NotAfter: begin.Add(Life), URIs: []*url.URL{identity(r.Namespace, r.Spec.PodName)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, s.root, request.PublicKey, s.key)
	if err != nil {
		return fmt.Errorf("sign PodCertificateRequest %s/%s: %w", r.Namespace, r.Name, err)
	}
	encode := func(der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	r.Status.CertificateChain = "the leaf\n" + encode(der) + "the authority\n" + encode(s.root.Raw)
	at := func(d time.Duration) *metav1.Time { return new(metav1.NewTime(begin.Add(d))) }
	r.Status.NotBefore, r.Status.BeginRefreshAt, r.Status.NotAfter = at(0), at(Life/2), at(Life)
	return nil
}

func identity(namespace, pod string) *url.URL {
	return &url.URL{Scheme: "pod", Host: "cluster.local", Path: "/" + namespace + "/" + pod}
}

// Verify checks that a credential bundle is a private key with the certificate that this signer has issued for it to a
// pod.
func (s *Signer) Verify(bundle []byte, namespace, pod string) error {
	pair, err := tls.X509KeyPair(bundle, bundle)
	if err != nil {
		return fmt.Errorf("read a credential bundle: %w", err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(s.root)
	_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	if err != nil {
		return fmt.Errorf("verify a certificate: %w", err)
	}
	want := identity(namespace, pod).String()
	if len(pair.Leaf.URIs) != 1 || pair.Leaf.URIs[0].String() != want {
		return fmt.Errorf("the certificate is for %v, want %s", pair.Leaf.URIs, want)
	}
	if block, _ := pem.Decode(bundle); block == nil || block.Type != "PRIVATE KEY" {
		return errors.New("the bundle does not begin with its private key")
	}
	return nil
}
