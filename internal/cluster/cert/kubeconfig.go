package cert

import (
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/berth-run/berth/internal/base/checkpoint"
)

// readKubeconfig returns how the kubeconfig at a path reaches the API server. A missing file is fs.ErrNotExist.
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
	text, err := clientcmd.Write(*k)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		err = checkpoint.Replace(path, text) // synced: the bootstrap token may work only once
	}
	if err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}
