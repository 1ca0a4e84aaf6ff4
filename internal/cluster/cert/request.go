package cert

import (
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/kubernetes"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate"
	"k8s.io/client-go/util/certificate/csr"
	"k8s.io/client-go/util/keyutil"
)

// signatureTimeout limits one wait for a signature. The next wait is for the same request.
const signatureTimeout = 15 * time.Minute

// issued is a pair that a signer of the cluster issues to this node. It is stored where the kubelet looks for it.
type issued struct {
	dir    string // CertDir
	prefix string // of the names of its files in dir
	signer string
	usage  certificatesv1.KeyUsage
}

// file returns where the newest pair is stored.
func (i issued) file() string { return filepath.Join(i.dir, i.prefix+"-current.pem") }

// keyFile returns where the key is stored until its certificate is signed. An agent that restarts finds the key there
// and waits for the same request.
func (i issued) keyFile() string { return filepath.Join(i.dir, i.prefix+".key.tmp") }

// renew requests a pair, waits until it is signed, and stores it.
func (i issued) renew(ctx context.Context, client kubernetes.Interface, template *x509.CertificateRequest) error {
	cert, key, err := i.request(ctx, client, template)
	if err != nil {
		return err
	}
	store, err := certificate.NewFileStore(i.prefix, i.dir, i.dir, "", "")
	if err == nil {
		_, err = store.Update(cert, key)
	}
	if err != nil {
		return fmt.Errorf("store certificate in %s: %w", i.dir, err)
	}
	return removeKey(i.keyFile())
}

// request requests a certificate and waits until it is signed. It returns the certificate and its key as PEM.
func (i issued) request(ctx context.Context, client kubernetes.Interface,
	template *x509.CertificateRequest) (cert, key []byte, err error) {
	key, private, err := i.loadKey()
	if err != nil {
		return nil, nil, err
	}
	request, err := certutil.MakeCSRFromTemplate(private, template)
	if err != nil {
		return nil, nil, fmt.Errorf("make certificate request: %w", err)
	}
	usages := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature}
	if _, ok := private.(*rsa.PrivateKey); ok {
		usages = append(usages, certificatesv1.UsageKeyEncipherment)
	}
	usages = append(usages, i.usage)
	name, err := requestName(private.Public(), i.signer, template)
	if err != nil {
		return nil, nil, err
	}
	name, uid, err := csr.RequestCertificateWithContext(ctx, client, request, name, i.signer, nil, usages, private)
	if err != nil {
		return nil, nil, fmt.Errorf("request a certificate from %s: %w", i.signer, err)
	}
	ctx, cancel := context.WithTimeout(ctx, signatureTimeout)
	defer cancel()
	cert, err = csr.WaitForCertificate(ctx, client, name, uid)
	if err != nil {
		if ctx.Err() == nil { // denied or failed: the next request needs another key
			err = errors.Join(err, removeKey(i.keyFile()))
		}
		return nil, nil, fmt.Errorf("wait for the signature on CertificateSigningRequest %s: %w", name, err)
	}
	return cert, key, nil
}

// loadKey returns the key for the next request, as PEM and parsed. It makes one if there is none.
func (i issued) loadKey() (encoded []byte, private crypto.Signer, err error) {
	file := i.keyFile()
	if err := os.MkdirAll(i.dir, 0o755); err != nil {
		return nil, nil, fmt.Errorf("make directory of certificates: %w", err)
	}
	encoded, _, err = keyutil.LoadOrGenerateKeyFile(file)
	if err != nil {
		return nil, nil, fmt.Errorf("make private key %s: %w", file, err)
	}
	parsed, err := keyutil.ParsePrivateKeyPEM(encoded)
	if err != nil {
		return nil, nil,
			fmt.Errorf("read private key %s: %w; next: remove it, and the agent makes another one", file, err)
	}
	private, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, nil,
			fmt.Errorf("read private key %s: a %T cannot sign; next: remove it, and the agent makes another one",
				file, parsed)
	}
	return encoded, private, nil
}

func removeKey(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove private key: %w", err)
	}
	return nil
}

// requestName returns the same name for the same key and subject.
func requestName(public crypto.PublicKey, signer string, t *x509.CertificateRequest) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return "", fmt.Errorf("name certificate request: %w", err)
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%x|%s|%q|%q|%q|%v", der, signer, t.Subject.CommonName, t.Subject.Organization, t.DNSNames,
		t.IPAddresses)
	return "node-csr-" + base64.RawURLEncoding.EncodeToString(sum.Sum(nil)), nil
}

// life returns the fraction of a certificate's life after which it is renewed: 0.7 to 0.9 at random, so that nodes
// made together do not renew together.
func life() float64 { return 0.7 + 0.2*rand.Float64() }
