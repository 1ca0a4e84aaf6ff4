package cert

import (
	"fmt"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
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
	next := path + ".next"
	if err := clientcmd.WriteToFile(*k, next); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	if err := os.Rename(next, path); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}
