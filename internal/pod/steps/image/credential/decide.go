package credential

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
)

// entry has the credentials for one registry in a docker configuration.
type entry struct {
	Username      string `json:"username,omitempty"`
	Password      string `json:"password,omitempty"`
	IdentityToken string `json:"identitytoken,omitempty"`
	// Auth is base64 of username:password. It takes precedence over both.
	Auth string `json:"auth,omitempty"`
}

// entries has the entries of a configuration by registry or repository.
type entries map[string]entry

// parseConfigJSON reads ~/.docker/config.json and secrets of type kubernetes.io/dockerconfigjson.
func parseConfigJSON(data []byte) (entries, error) {
	var config struct {
		Auths entries `json:"auths"`
	}
	if err := json.Unmarshal(data, &config); err != nil {
		return nil, parseError(err)
	}
	return config.Auths.decode()
}

// parseConfig reads the older ~/.dockercfg and secrets of type kubernetes.io/dockercfg.
func parseConfig(data []byte) (entries, error) {
	var config entries
	if err := json.Unmarshal(data, &config); err != nil {
		return nil, parseError(err)
	}
	return config.decode()
}

// parseError names the place of a mistake without quoting the text, which may hold secrets.
func parseError(err error) error {
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("not a docker configuration: syntax error at byte %d", e.Offset)
	}
	return fmt.Errorf("not a docker configuration: %T", err)
}

// decode replaces the auth of each entry by its user name and password.
func (all entries) decode() (entries, error) {
	decoded := entries{}
	for key, e := range all {
		if e.Auth != "" {
			text, err := decodeBase64(e.Auth)
			name, password, ok := strings.Cut(text, ":")
			if err != nil || !ok {
				return nil, fmt.Errorf("auth of %q is not base64 of USERNAME:PASSWORD", key)
			}
			e.Username, e.Password = name, strings.TrimRight(password, "\x00")
		}
		e.Auth = ""
		decoded[key] = e
	}
	return decoded, nil
}

// decodeBase64 accepts text with and without padding.
func decodeBase64(text string) (string, error) {
	text = strings.TrimRight(strings.TrimSpace(text), "=")
	data, err := base64.RawStdEncoding.DecodeString(text)
	return string(data), err
}

// dockerHub is the key that docker writes for its own registry.
const dockerHub = "index.docker.io"

// find returns the entries for a repository such as docker.io/library/busybox, the best match first.
func (all entries) find(repository string) []entry {
	type candidate struct {
		pattern, key string
	}
	var candidates []candidate
	for key := range all {
		if pattern, ok := normal(key); ok {
			candidates = append(candidates, candidate{pattern, key})
		}
	}
	slices.SortFunc(candidates, func(a, b candidate) int {
		if c := strings.Compare(b.pattern, a.pattern); c != 0 {
			return c
		}
		return strings.Compare(a.key, b.key)
	})
	var found []entry
	for _, c := range candidates {
		if matches(c.pattern, repository) {
			found = append(found, all[c.key])
		}
	}
	if len(found) > 0 || !ofDockerHub(repository) {
		return found
	}
	for _, c := range candidates {
		if c.pattern == dockerHub {
			found = append(found, all[c.key])
		}
	}
	return found
}

// normal returns a key of a configuration as a pattern host[:port][/path]. It removes the scheme and the API version
// that docker writes (https://index.docker.io/v1/).
func normal(key string) (pattern string, ok bool) {
	if !strings.HasPrefix(key, "https://") && !strings.HasPrefix(key, "http://") {
		key = "https://" + key
	}
	u, err := url.Parse(key)
	if err != nil || u.Host == "" {
		return "", false
	}
	under := u.Path
	if strings.HasPrefix(under, "/v1/") || strings.HasPrefix(under, "/v2/") {
		under = under[3:]
	}
	if under == "/" {
		under = ""
	}
	return u.Host + under, true
}

// matches reports whether a pattern host[:port][/path] covers a repository. Each part of the host may contain globs,
// which do not match a dot. The path is a prefix.
func matches(pattern, repository string) bool {
	p, err := url.Parse("https://" + pattern)
	if err != nil {
		return false
	}
	r, err := url.Parse("https://" + repository)
	if err != nil || p.Port() != r.Port() || !strings.HasPrefix(r.Path, p.Path) {
		return false
	}
	want, have := strings.Split(p.Hostname(), "."), strings.Split(r.Hostname(), ".")
	if len(want) != len(have) {
		return false
	}
	for i := range want {
		if ok, err := path.Match(want[i], have[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

// checkPattern returns an error for an invalid pattern of matchImages.
func checkPattern(pattern string) error {
	p, err := url.Parse("https://" + pattern)
	if err != nil || p.Hostname() == "" || strings.Contains(pattern, "://") {
		return fmt.Errorf("%q is not HOST[:PORT][/PATH]", pattern)
	}
	for part := range strings.SplitSeq(p.Hostname(), ".") {
		if _, err := path.Match(part, ""); err != nil {
			return fmt.Errorf("%q has an incomplete glob", pattern)
		}
	}
	return nil
}

// ofDockerHub reports whether a repository belongs to Docker Hub, the registry of names without a host.
func ofDockerHub(repository string) bool {
	host, _, ok := strings.Cut(repository, "/")
	switch {
	case host == "":
		return false
	case !ok, host == "docker.io", host == dockerHub:
		return true
	}
	return !strings.ContainsAny(host, ".:") && host != "localhost"
}

// hostOf returns the registry of a repository: host[:port].
func hostOf(repository string) string {
	host, _, _ := strings.Cut(repository, "/")
	return host
}
