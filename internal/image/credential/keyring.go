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
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Credential is one way to authenticate at a registry.
type Credential struct {
	Auth *runtimeapi.AuthConfig
	// Secret is where it comes from; nil for a credential of the node, which
	// every pod may use.
	Secret *Secret
}

// Secret names a pull secret and what in it was used.
type Secret struct {
	UID, Namespace, Name string
	// Hash is the SHA-256 of the credential, in hex.
	Hash string
}

// Options of a Keyring.
type Options struct {
	// RootDir is the agent's, HomeDir the user's; "" for none. Each may have a
	// docker configuration.
	RootDir, HomeDir string
	// Providers are asked in this order.
	Providers []Provider
	// Environ is what the plugins' processes get besides their own variables.
	Environ []string
	Now     func() time.Time
}

// Keyring finds credentials. Its methods may be called from any goroutine.
type Keyring struct {
	files   []file
	plugins []*plugin
}

// file is a docker configuration of the node.
type file struct {
	path  string
	parse func([]byte) (entries, error)
}

// New makes a Keyring. Nothing is read before it is asked.
func New(o Options) *Keyring {
	k := &Keyring{}
	for _, p := range o.Providers {
		k.plugins = append(k.plugins, newPlugin(p, o.Environ, o.Now))
	}
	// The kubelet's places and order (pkg/credentialprovider/config.go), without
	// the working directory: who starts the agent there should not matter.
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

// Find lists what a repository, such as docker.io/library/busybox, can be pulled
// with, in the order in which to try it: from the pod's secrets, the node's
// configuration, the plugins. The error joins what could not be read or asked;
// the list holds the rest.
func (k *Keyring) Find(ctx context.Context, repository string, secrets []*corev1.Secret) ([]Credential, error) {
	found, err := ofSecrets(repository, secrets)
	errs := []error{err}
	all, err := k.ofNode()
	errs = append(errs, err)
	for _, e := range all.find(repository) {
		found = append(found, Credential{Auth: e.auth()})
	}
	for _, p := range k.plugins {
		all, err := p.provide(ctx, repository)
		errs = append(errs, err)
		for _, e := range all.find(repository) {
			found = append(found, Credential{Auth: e.auth()})
		}
	}
	return found, errors.Join(errs...)
}

// OfSecrets is what of the secrets is for the repository, as in Find.
func (k *Keyring) OfSecrets(repository string, secrets []*corev1.Secret) ([]Secret, error) {
	found, err := ofSecrets(repository, secrets)
	all := make([]Secret, len(found))
	for i, c := range found {
		all[i] = *c.Secret
	}
	return all, err
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

// ofSecret reads a pull secret. One of another type holds nothing.
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

// ofNode reads the first configuration of the node that there is.
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
