package kubeapitest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Identity is the user of a client certificate.
type Identity struct {
	User   string
	Groups []string
	// Lifetime begins now. Zero stands for 12 hours, and a negative one has already expired.
	Lifetime time.Duration
}

// Node returns the identity of a node.
func Node(name string) Identity {
	return Identity{User: "system:node:" + name, Groups: []string{"system:nodes"}}
}

// config returns the configuration of a client of a server, with a certificate for id.
func (s *servers) config(server string, id Identity) (*rest.Config, error) {
	keys, err := s.ca.client(id)
	return &rest.Config{
		Host: server, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: s.ca.pem, CertData: keys.cert, KeyData: keys.key},
	}, err
}

// file writes a config as a kubeconfig.
func (s *servers) file(name string, c *rest.Config) (string, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: c.Host, CertificateAuthorityData: c.CAData}
	config.AuthInfos["user"] = &clientcmdapi.AuthInfo{
		ClientCertificateData: c.CertData, ClientKeyData: c.KeyData, Token: c.BearerToken,
	}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "user"}
	config.CurrentContext = "test"
	text, err := clientcmd.Write(*config)
	if err != nil {
		return "", fmt.Errorf("write kubeconfig: %w", err)
	}
	path := filepath.Join(s.dir, name+".kubeconfig")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return "", fmt.Errorf("write kubeconfig: %w", err)
	}
	return path, nil
}

// newFile is file with a unique name.
func (s *servers) newFile(name string, c *rest.Config) (string, error) {
	return s.file(s.name(strings.ReplaceAll(name, ":", "-")), c)
}
