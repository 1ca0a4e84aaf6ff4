package credential

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"

	"github.com/berth-run/berth/internal/base/sysmon"
)

const (
	// apiVersion is the only supported version of the exec protocol.
	apiVersion   = "credentialprovider.kubelet.k8s.io/v1"
	responseKind = "CredentialProviderResponse"
	// execTimeout is the kubelet's limit for one run of a plugin.
	execTimeout = time.Minute
	// maxAnswer is the longest answer of a plugin, in bytes.
	maxAnswer = 1 << 20
	// maxStderr is how many bytes of its standard error are shown.
	maxStderr = 512
)

// plugin runs a provider and caches its answers, in memory only.
type plugin struct {
	Provider
	environ []string
	now     func() time.Time
	timeout time.Duration
	metrics metrics

	// running holds one token while the plugin runs: several pulls wait for one answer.
	running chan struct{}
	mu      sync.Mutex
	cache   map[string]answer // by cacheKey
}

type answer struct {
	entries entries
	until   time.Time
}

func newPlugin(p Provider, environ []string, now func() time.Time, m metrics) *plugin {
	return &plugin{Provider: p, environ: environ, now: now, timeout: execTimeout, metrics: m,
		running: make(chan struct{}, 1), cache: map[string]answer{}}
}

// cacheKey returns the cache key of an answer. All requests with the same grant share it.
func cacheKey(kind v1.PluginCacheKeyType, repository, grant string) (string, error) {
	switch kind {
	case v1.ImagePluginCacheKeyType:
		return "image " + repository + " " + grant, nil
	case v1.RegistryPluginCacheKeyType:
		return "registry " + hostOf(repository) + " " + grant, nil
	case v1.GlobalPluginCacheKeyType:
		return "global " + grant, nil
	}
	return "", fmt.Errorf("cacheKeyType is %q, must be Image, Registry or Global", kind)
}

func (p *plugin) cached(repository, grant string) (entries, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	for key, a := range p.cache {
		if !now.Before(a.until) {
			delete(p.cache, key)
		}
	}
	for _, kind := range []v1.PluginCacheKeyType{v1.ImagePluginCacheKeyType, v1.RegistryPluginCacheKeyType,
		v1.GlobalPluginCacheKeyType} {
		key, _ := cacheKey(kind, repository, grant)
		if a, ok := p.cache[key]; ok {
			return a.entries, true
		}
	}
	return nil, false
}

// provide returns an answer from the cache, or runs the plugin with a grant.
func (p *plugin) provide(ctx context.Context, repository string, g *grant) (entries, error) {
	granted := g.key(p.Token != nil && p.Token.PerToken)
	if e, ok := p.cached(repository, granted); ok {
		return e, nil
	}
	select {
	case p.running <- struct{}{}:
		defer func() { <-p.running }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if e, ok := p.cached(repository, granted); ok {
		return e, nil
	}
	return p.ask(ctx, repository, granted, g)
}

func (p *plugin) ask(ctx context.Context, repository, granted string, g *grant) (entries, error) {
	request := v1.CredentialProviderRequest{Image: repository}
	if g != nil {
		request.ServiceAccountToken, request.ServiceAccountAnnotations = g.token, g.annotations
	}
	request.APIVersion, request.Kind = apiVersion, "CredentialProviderRequest"
	text, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	out, err := p.run(ctx, text)
	p.metrics.ran(p.Name, time.Since(began), err)
	if err != nil {
		return nil, err
	}
	var response v1.CredentialProviderResponse
	if err := json.Unmarshal(out, &response); err != nil {
		return nil, errors.New("the plugin's answer is not JSON of a " + responseKind)
	}
	if response.APIVersion != apiVersion || response.Kind != responseKind {
		return nil,
			fmt.Errorf("the plugin's answer is a %q of %q, must be a %s of %s", response.Kind, response.APIVersion,
				responseKind,
				apiVersion)
	}
	key, err := cacheKey(response.CacheKeyType, repository, granted)
	if err != nil {
		return nil, err
	}
	life := p.CacheDuration
	if response.CacheDuration != nil {
		life = response.CacheDuration.Duration
	}
	if life < 0 {
		return nil, fmt.Errorf("the plugin's cacheDuration %v must not be negative", life)
	}
	all := entries{}
	for pattern, a := range response.Auth {
		if g != nil && !p.Token.PerToken && a.Password == g.token {
			return nil,
				errors.New(
					"the plugin's answer is the token itself, which belongs to one pod; next: set " +
						"tokenAttributes.cacheType to Token")
		}
		all[pattern] = entry{Username: a.Username, Password: a.Password}
	}
	if life > 0 {
		p.mu.Lock()
		p.cache[key] = answer{all, p.now().Add(life)}
		p.mu.Unlock()
	}
	return all, nil
}

// run executes the plugin once.
func (p *plugin) run(ctx context.Context, request []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.Path, p.Args...)
	cmd.Env = append(append([]string{}, p.environ...), p.Env...)
	cmd.Stdin = bytes.NewReader(request)
	out, stderr := &limited{most: maxAnswer}, &limited{most: maxStderr}
	cmd.Stdout, cmd.Stderr = out, stderr
	cmd.WaitDelay = time.Second
	err := sysmon.Run(cmd)
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("the plugin did not answer: %w", context.Cause(ctx))
	case err != nil:
		if text := strings.TrimSpace(stderr.String()); text != "" {
			return nil, fmt.Errorf("%w: %s", err, text)
		}
		return nil, err
	case out.over:
		return nil, fmt.Errorf("the plugin's answer is longer than %d bytes", maxAnswer)
	}
	return out.Bytes(), nil
}

// limited keeps the beginning of the written data.
type limited struct {
	bytes.Buffer
	most int
	over bool
}

// Write implements io.Writer.
func (l *limited) Write(p []byte) (int, error) {
	room := l.most - l.Len()
	if len(p) > room {
		l.over = true
		l.Buffer.Write(p[:room])
		return len(p), nil
	}
	return l.Buffer.Write(p)
}

// ReadFrom prevents io.Copy from bypassing Write.
func (l *limited) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{l}, r)
}
