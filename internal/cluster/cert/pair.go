package cert

import (
	"crypto/tls"
	"encoding/pem"
	"fmt"

	"k8s.io/client-go/util/keyutil"
)

// loadPair reads a certificate and its key, which may be in one file.
func loadPair(cert, key string) (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("read certificate %s: %w", cert, err)
	}
	return &pair, nil
}

// encode returns a pair as PEM.
func encode(pair *tls.Certificate) (cert, key []byte, err error) {
	for _, der := range pair.Certificate {
		cert = append(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	if key, err = keyutil.MarshalPrivateKeyToPEM(pair.PrivateKey); err != nil {
		return nil, nil, fmt.Errorf("encode private key: %w", err)
	}
	return cert, key, nil
}
