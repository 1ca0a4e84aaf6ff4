package credential

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	v1 "k8s.io/kubelet/config/v1"
	"sigs.k8s.io/yaml"
)

// Provider is one plugin of a validated CredentialProviderConfig.
type Provider struct {
	Name string
	// Path is the file name of the program.
	Path string
	// MatchImages are the patterns of the images that the plugin is run for.
	MatchImages []string
	// CacheDuration applies to answers that name none. 0 means that they are not cached.
	CacheDuration time.Duration
	Args          []string
	Env           []string // NAME=VALUE
	// Token is nil for a plugin that receives no tokens of service accounts.
	Token *TokenAttributes
}

// TokenAttributes selects the data of a pod's service account that a plugin receives (KEP-4412).
type TokenAttributes struct {
	Audience string
	// PerToken caches answers per token (cacheType Token) instead of per service account.
	PerToken bool
	// Required skips the plugin for pods without a service account.
	Required bool
	// RequiredAnnotations of the service account are passed to the plugin, which is skipped if one is missing.
	// OptionalAnnotations are passed if they exist.
	RequiredAnnotations, OptionalAnnotations []string
}

func (p Provider) covers(repository string) bool {
	return slices.ContainsFunc(p.MatchImages, func(pattern string) bool { return matches(pattern, repository) })
}

// Load reads a CredentialProviderConfig (kubelet.config.k8s.io/v1), or all .yaml, .yml and .json files of a directory
// in the order of their names. The plugins' programs are in binDir. The error names everything that is wrong.
func Load(path, binDir string) ([]Provider, error) {
	files, err := configFiles(path)
	if err != nil {
		return nil, fmt.Errorf("read credential providers: %w", err)
	}
	var all []Provider
	var errs []error
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			errs = append(errs, fmt.Errorf("read credential providers: %w", err))
			continue
		}
		providers, err := parseProviders(text, binDir)
		if err != nil {
			errs = append(errs, fmt.Errorf("read credential providers: %s: %w", name, err))
		}
		for _, p := range providers {
			if slices.ContainsFunc(all, func(other Provider) bool { return other.Name == p.Name }) {
				errs = append(errs,
					fmt.Errorf("read credential providers: %s: provider %q occurs twice", name, p.Name))
			}
			if err := executable(p.Path); err != nil {
				errs = append(errs, fmt.Errorf("read credential providers: %s: provider %q: %w", name, p.Name, err))
			}
			all = append(all, p)
		}
	}
	return all, errors.Join(errs...)
}

// WithoutTokens returns an error if a plugin is to receive tokens of service accounts.
func WithoutTokens(all []Provider) error {
	for _, p := range all {
		if p.Token != nil {
			return fmt.Errorf("read credential providers: provider %q: tokenAttributes needs the feature gate "+
				"KubeletServiceAccountTokenForCredentialProviders: true", p.Name)
		}
	}
	return nil
}

func configFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}, err
	}
	entries, err := os.ReadDir(path)
	var files []string
	for _, e := range entries {
		if slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(e.Name())) && !e.IsDir() {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("%s has no .yaml, .yml or .json file", path)
	}
	return files, err
}

func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	const anyExecute = 0o111
	if info.IsDir() || info.Mode()&anyExecute == 0 {
		return fmt.Errorf("%s is not a program", path)
	}
	return nil
}

func parseProviders(text []byte, binDir string) ([]Provider, error) {
	var config v1.CredentialProviderConfig
	if err := yaml.UnmarshalStrict(text, &config); err != nil {
		return nil, err
	}
	if config.APIVersion != v1.SchemeGroupVersion.String() || config.Kind != "CredentialProviderConfig" {
		return nil,
			fmt.Errorf("a %q of %q is not supported, must be a CredentialProviderConfig of %s", config.Kind,
				config.APIVersion,
				v1.SchemeGroupVersion)
	}
	if len(config.Providers) == 0 {
		return nil, errors.New("providers: must have at least one")
	}
	var all []Provider
	var errs []error
	for i := range config.Providers {
		p, err := newProvider(&config.Providers[i], binDir)
		if err != nil {
			errs = append(errs, fmt.Errorf("providers[%d]: %w", i, err))
			continue
		}
		all = append(all, p)
	}
	return all, errors.Join(errs...)
}

func newProvider(c *v1.CredentialProvider, binDir string) (Provider, error) {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Name == "" || c.Name == "." || c.Name == ".." || strings.ContainsAny(c.Name, "/ \t\n") {
		wrong("name: %q is not the name of a program in the directory of --image-credential-provider-bin-dir", c.Name)
	}
	if c.APIVersion != apiVersion {
		wrong("apiVersion: %q is not supported, must be %s", c.APIVersion, apiVersion)
	}
	if len(c.MatchImages) == 0 {
		wrong("matchImages: must have at least one pattern")
	}
	for _, pattern := range c.MatchImages {
		if err := checkPattern(pattern); err != nil {
			wrong("matchImages: %w", err)
		}
	}
	p := Provider{Name: c.Name, Path: filepath.Join(binDir, c.Name), MatchImages: c.MatchImages, Args: c.Args}
	switch {
	case c.DefaultCacheDuration == nil:
		wrong("defaultCacheDuration: must be set; 0s keeps no answer")
	case c.DefaultCacheDuration.Duration < 0:
		wrong("defaultCacheDuration: %v must not be negative", c.DefaultCacheDuration.Duration)
	default:
		p.CacheDuration = c.DefaultCacheDuration.Duration
	}
	if a := c.TokenAttributes; a != nil {
		for _, err := range tokenFaults(a) {
			wrong("tokenAttributes.%w", err)
		}
		p.Token = &TokenAttributes{
			Audience: a.ServiceAccountTokenAudience, PerToken: a.CacheType == v1.TokenServiceAccountTokenCacheType,
			Required:            a.RequireServiceAccount != nil && *a.RequireServiceAccount,
			RequiredAnnotations: a.RequiredServiceAccountAnnotationKeys,
			OptionalAnnotations: a.OptionalServiceAccountAnnotationKeys,
		}
	}
	for _, e := range c.Env {
		p.Env = append(p.Env, e.Name+"="+e.Value)
	}
	return p, errors.Join(errs...)
}

func tokenFaults(a *v1.ServiceAccountTokenAttributes) (errs []error) {
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if a.ServiceAccountTokenAudience == "" {
		wrong("serviceAccountTokenAudience: must be set")
	}
	if types := []v1.ServiceAccountTokenCacheType{v1.ServiceAccountServiceAccountTokenCacheType,
		v1.TokenServiceAccountTokenCacheType}; !slices.Contains(types, a.CacheType) {
		wrong("cacheType: %q is not supported, must be one of %q", a.CacheType, types)
	}
	if a.RequireServiceAccount == nil {
		wrong("requireServiceAccount: must be set")
	} else if !*a.RequireServiceAccount && len(a.RequiredServiceAccountAnnotationKeys) > 0 {
		wrong("requireServiceAccount: must be true with requiredServiceAccountAnnotationKeys")
	}
	var known []string
	for _, key := range slices.Concat(a.RequiredServiceAccountAnnotationKeys, a.OptionalServiceAccountAnnotationKeys) {
		for _, message := range validation.IsQualifiedName(strings.ToLower(key)) {
			wrong("requiredServiceAccountAnnotationKeys and optionalServiceAccountAnnotationKeys: %q: %s", key, message)
		}
		if slices.Contains(known, key) {
			wrong("optionalServiceAccountAnnotationKeys: %q occurs twice", key)
		}
		known = append(known, key)
	}
	return errs
}
