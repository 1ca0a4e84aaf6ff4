package cert

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/kubernetes"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/certificate/csr"
	"k8s.io/client-go/util/keyutil"
)

// signatureTimeout limits one wait for a signature. The next wait is for the same request.
const signatureTimeout = 15 * time.Minute

// requestPair requests a certificate and waits until it is signed. It returns the certificate and its key as PEM. The
// key stays in keyFile until then, so that an agent that restarts waits for the same request.
func requestPair(ctx context.Context, client kubernetes.Interface, signer string, usage certificatesv1.KeyUsage,
	template *x509.CertificateRequest, keyFile string) (cert, key []byte, err error) {
	if err := os.MkdirAll(filepath.Dir(keyFile), 0o755); err != nil {
		return nil, nil, fmt.Errorf("make directory of certificates: %w", err)
	}
	key, _, err = keyutil.LoadOrGenerateKeyFile(keyFile)
	if err != nil {
		return nil, nil, fmt.Errorf("make private key %s: %w", keyFile, err)
	}
	parsed, err := keyutil.ParsePrivateKeyPEM(key)
	if err != nil {
		return nil, nil,
			fmt.Errorf("read private key %s: %w; next: remove it, and the agent makes another one", keyFile, err)
	}
	private, ok := parsed.(crypto.Signer)
	if !ok {
		return nil, nil,
			fmt.Errorf("read private key %s: a %T cannot sign; next: remove it, and the agent makes another one",
				keyFile, parsed)
	}
	request, err := certutil.MakeCSRFromTemplate(private, template)
	if err != nil {
		return nil, nil, fmt.Errorf("make certificate request: %w", err)
	}
	usages := []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature}
	if _, ok := private.(*rsa.PrivateKey); ok {
		usages = append(usages, certificatesv1.UsageKeyEncipherment)
	}
	usages = append(usages, usage)
	name, err := requestName(private.Public(), signer, template)
	if err != nil {
		return nil, nil, err
	}
	name, uid, err := csr.RequestCertificateWithContext(ctx, client, request, name, signer, nil, usages, private)
	if err != nil {
		return nil, nil, fmt.Errorf("request a certificate from %s: %w", signer, err)
	}
	ctx, cancel := context.WithTimeout(ctx, signatureTimeout)
	defer cancel()
	cert, err = csr.WaitForCertificate(ctx, client, name, uid)
	if err != nil {
		if ctx.Err() == nil { // denied or failed: the next request needs another key
			err = errors.Join(err, removeKey(keyFile))
		}
		return nil, nil, fmt.Errorf("wait for the signature on CertificateSigningRequest %s: %w", name, err)
	}
	return cert, key, nil
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
func life() (float64, error) {
	var b [1]byte
	if _, err := rand.Read(b[:]); err != nil {
		return 0, err
	}
	return 0.7 + 0.2*float64(b[0])/255, nil
}
