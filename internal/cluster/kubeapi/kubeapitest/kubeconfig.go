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

// Identity is who a client certificate is for.
type Identity struct {
	User   string
	Groups []string
	// Lifetime is from now, 12 hours when it is zero; a negative one has expired.
	Lifetime time.Duration
}

// Node is the identity of a node.
func Node(name string) Identity {
	return Identity{User: "system:node:" + name, Groups: []string{"system:nodes"}}
}

// config is for a client at server with a certificate for id.
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

// fresh is file with a name that no other has.
func (s *servers) fresh(name string, c *rest.Config) (string, error) {
	return s.file(s.name(strings.ReplaceAll(name, ":", "-")), c)
}
