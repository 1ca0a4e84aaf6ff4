package ui

import (
	"regexp"
)

// leftOut replaces each concealed value in an exported page.
const leftOut = "(left out)"

// words are the names of secrets, as a regular expression.
const words = `pass(?:word|wd|phrase)|secret|token|api[-_]?key|credentials?|private[-_]?key|authorization`

var (
	// secretName is a word that names a secret.
	secretName = regexp.MustCompile(`(?i)` + words)
	// secretFlag is a flag whose value is the next argument.
	secretFlag = regexp.MustCompile(`^--?[A-Za-z0-9._-]+$`)
	// secretText is a secret in a text: NAME=VALUE, NAME="VALUE" or NAME: VALUE.
	secretText = regexp.MustCompile(`(?i)((?:` + words + `)["']?\s*[=:]\s*)` +
		`(?:(["'])[^"']+(["'])|((?:bearer\s+|basic\s+)?)[^\s"',;&]+)`)
	// secretURL is a URL with a password.
	secretURL = regexp.MustCompile(`://[^/\s:@]*:[^/\s@]+@`)
)

// lastApplied is a whole manifest in an annotation, with all its values.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// conceal returns a JSON value without secrets and values that look like secrets. key is the field that has the value.
// It always conceals the values of environment variables and headers.
func conceal(key string, value any) any {
	switch v := value.(type) {
	case string:
		v = secretText.ReplaceAllString(v, "${1}${2}${4}"+leftOut+"${3}")
		return secretURL.ReplaceAllString(v, "://"+leftOut+"@")
	case []any:
		for i := range v {
			flag, _ := v[max(0, i-1)].(string)
			if _, text := v[i].(string); text && i > 0 && secretFlag.MatchString(flag) && secretName.MatchString(flag) {
				v[i] = leftOut
				continue
			}
			v[i] = conceal(key, v[i])
		}
	case map[string]any:
		_, named := v["name"]
		delete(v, lastApplied)
		for k := range v {
			_, text := v[k].(string)
			if text && (named && k == "value" || key == "annotations" && secretName.MatchString(k)) {
				v[k] = leftOut
				continue
			}
			v[k] = conceal(k, v[k])
		}
	}
	return value
}
