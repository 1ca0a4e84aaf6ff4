package kubeapitest

import (
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
)

// remoteName is the host name of a Remote. The API server's certificate has it.
const remoteName = "kubernetes"

var errElsewhere = errors.New("this server does not run here")

// Remote is a control plane that runs on another machine.
type Remote struct {
	// CA and Key are the authority's as PEM. With them a client can be any user.
	CA, Key []byte
	// API and Nodes are the ports of the API server and of the nodes' proxy, at the host "kubernetes".
	API, Nodes string
}

// RemoteOf returns a Remote for another machine. That machine must forward these ports of the host "kubernetes" to
// 127.0.0.1 of this one.
func RemoteOf(c *Cluster) Remote {
	c.t.Helper()
	key, err := keyPEM(c.servers.ca.key)
	c.check(err)
	_, nodes, err := net.SplitHostPort(c.servers.front(c.t).listener.Addr().String())
	c.check(err)
	return Remote{CA: c.servers.ca.pem, Key: key, API: c.servers.ports.api.String(), Nodes: nodes}
}

// Attach returns a control plane on another machine for one test. It cannot be stopped, paused or cut off.
func Attach(t T, r Remote) *Cluster {
	t.Helper()
	s, err := r.servers()
	if err != nil {
		t.Fatalf("attach to cluster: %v", err)
	}
	return s.during(t)
}

func (r Remote) servers() (*servers, error) {
	at := func(port string) string {
		return (&url.URL{Scheme: "https", Host: net.JoinHostPort(remoteName, port)}).String()
	}
	s := &servers{nodes: at(r.Nodes)}
	var err error
	if s.ca, err = readAuthority(r.CA, r.Key); err != nil {
		return nil, err
	}
	if s.program, err = program(); err != nil {
		return nil, err
	}
	if s.dir, err = newDir(); err != nil {
		return nil, err
	}
	err = os.WriteFile(filepath.Join(s.dir, "ca.crt"), r.CA, 0o600)
	if err == nil {
		err = s.administrator(at(r.API))
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// front returns the proxy. A Remote has none.
func (s *servers) front(t T) *proxy {
	t.Helper()
	if s.proxy == nil {
		t.Fatalf("cluster: %v", errElsewhere)
	}
	return s.proxy
}

func readAuthority(certPEM, keyPEM []byte) (*authority, error) {
	certBlock, _ := pem.Decode(certPEM)
	keyBlock, _ := pem.Decode(keyPEM)
	if certBlock == nil || keyBlock == nil {
		return nil, errors.New("read authority: it is not PEM")
	}
	cert, err := x509.ParseCertificate(certBlock.Bytes)
	var key *ecdsa.PrivateKey
	if err == nil {
		key, err = x509.ParseECPrivateKey(keyBlock.Bytes)
	}
	if err != nil {
		return nil, fmt.Errorf("read authority: %w", err)
	}
	return &authority{cert: cert, key: key, pem: certPEM}, nil
}
