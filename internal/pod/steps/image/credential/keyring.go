package credential

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Credential is one way to authenticate at a registry.
type Credential struct {
	Auth *runtimeapi.AuthConfig
	// Secret is the origin of the credential. It is nil for a credential of the node, which every pod may use.
	Secret *Secret
}

// Secret identifies the origin of a credential: a pull Secret and the entry used in it, or the service account whose
// token a plugin received.
type Secret struct {
	// Kind is empty for a Secret, otherwise ServiceAccount.
	Kind                 string `json:",omitempty"`
	UID, Namespace, Name string
	// Hash is the SHA-256 of the credential in hex, or the UID of a service account.
	Hash string
}

// Options of a Keyring.
type Options struct {
	// RootDir is the agent's directory, HomeDir the user's. Each may have a docker configuration. "" means none.
	RootDir, HomeDir string
	// Providers are called in this order.
	Providers []Provider
	// Environ is the base environment of the plugins' processes, before their own variables.
	Environ []string
	// Accounts serves providers that receive tokens. nil means that the node has no service accounts.
	Accounts Accounts
	Now      func() time.Time
}

// Keyring finds credentials. Its methods may be called from any goroutine.
type Keyring struct {
	files    []file
	plugins  []*plugin
	accounts Accounts
	metrics  metrics
}

// file is a docker configuration on the node.
type file struct {
	path  string
	parse func([]byte) (entries, error)
}

// New returns a Keyring. It reads nothing before the first call of Find or SecretsFor.
func New(o Options) *Keyring {
	k := &Keyring{accounts: o.Accounts, metrics: newMetrics()}
	for _, p := range o.Providers {
		k.plugins = append(k.plugins, newPlugin(p, o.Environ, o.Now, k.metrics))
	}
	// These are the kubelet's places and their order (pkg/credentialprovider/config.go), without the working directory.
	// Where the agent was started should not matter.
	homes := []string{"/"}
	if o.HomeDir != "" && o.HomeDir != "/" {
		homes = []string{o.HomeDir, "/"}
	}
	k.files = append(k.files, file{filepath.Join(o.RootDir, "config.json"), parseConfigJSON})
	for _, home := range homes {
		k.files = append(k.files, file{filepath.Join(home, ".docker", "config.json"), parseConfigJSON})
	}
	k.files = append(k.files, file{filepath.Join(o.RootDir, ".dockercfg"), parseConfig})
	for _, home := range homes {
		k.files = append(k.files, file{filepath.Join(home, ".dockercfg"), parseConfig})
	}
	return k
}

// Find returns the credentials for a repository, such as docker.io/library/busybox, in the order to try them: from the
// pod's secrets, the node's configuration, the plugins. p is nil for a pull by a command. The error joins the errors of
// all sources that failed. The list has the credentials of the other sources.
func (k *Keyring) Find(ctx context.Context, p *corev1.Pod, repository string, secrets []*corev1.Secret) ([]Credential,
	error) {
	found, err := ofSecrets(repository, secrets)
	errs := []error{err}
	all, err := k.ofNode()
	errs = append(errs, err)
	for _, e := range all.find(repository) {
		found = append(found, Credential{Auth: e.auth()})
	}
	for _, plugin := range k.plugins {
		if !plugin.covers(repository) {
			continue
		}
		all, source, err := plugin.find(ctx, k.accounts, p, repository)
		if err != nil {
			errs = append(errs, fmt.Errorf("run credential provider %q: %w", plugin.Name, err))
		}
		for _, e := range all.find(repository) {
			found = append(found, Credential{Auth: e.auth(), Secret: source})
		}
	}
	return found, errors.Join(errs...)
}

// SecretsFor returns the origins of the pod's own credentials for the repository: its secrets, as in Find, and its
// service account if a plugin for the repository uses that.
func (k *Keyring) SecretsFor(ctx context.Context, p *corev1.Pod, repository string, secrets []*corev1.Secret) ([]Secret,
	error) {
	found, err := ofSecrets(repository, secrets)
	var all []Secret
	for _, c := range found {
		all = append(all, *c.Secret)
	}
	usesToken := func(p *plugin) bool { return p.Token != nil && p.covers(repository) }
	if k.accounts == nil || p.Spec.ServiceAccountName == "" || !slices.ContainsFunc(k.plugins, usesToken) {
		return all, err
	}
	account, e := k.accounts.Account(ctx, p.Namespace, p.Spec.ServiceAccountName)
	if e == nil {
		all = append(all, *ofAccount(account))
	}
	return all, errors.Join(err, e)
}

func ofSecrets(repository string, secrets []*corev1.Secret) (found []Credential, err error) {
	for _, s := range secrets {
		all, e := ofSecret(s)
		err = errors.Join(err, e)
		for _, e := range all.find(repository) {
			found = append(found, Credential{Auth: e.auth(), Secret: &Secret{
				UID: string(s.UID), Namespace: s.Namespace, Name: s.Name, Hash: e.hash(),
			}})
		}
	}
	return found, err
}

// ofSecret reads a pull Secret. It returns nothing for other types.
func ofSecret(s *corev1.Secret) (entries, error) {
	var all entries
	var err error
	switch s.Type {
	case corev1.SecretTypeDockerConfigJson:
		all, err = parseConfigJSON(s.Data[corev1.DockerConfigJsonKey])
	case corev1.SecretTypeDockercfg:
		all, err = parseConfig(s.Data[corev1.DockerConfigKey])
	default:
	}
	if err != nil {
		return nil, fmt.Errorf("read pull secret %s/%s: %w", s.Namespace, s.Name, err)
	}
	return all, nil
}

// ofNode reads the first configuration of the node that exists.
func (k *Keyring) ofNode() (entries, error) {
	for _, f := range k.files {
		data, err := os.ReadFile(f.path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read docker configuration: %w", err)
		}
		all, err := f.parse(data)
		if err != nil {
			return nil, fmt.Errorf("read docker configuration %s: %w", f.path, err)
		}
		return all, nil
	}
	return nil, nil
}

func (e entry) auth() *runtimeapi.AuthConfig {
	return &runtimeapi.AuthConfig{Username: e.Username, Password: e.Password, IdentityToken: e.IdentityToken}
}

func (e entry) hash() string {
	text, err := json.Marshal(e)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
