package joined

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// audit reads the API server's audit log of the nodes' requests. The API server logs a watch when it begins, and other
// requests when it has answered them.
type audit struct{ policy, log string }

const policyText = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  userGroups: [system:nodes]
- level: None
`

func newAudit(dir string) (*audit, error) {
	a := &audit{policy: filepath.Join(dir, "audit.yaml"), log: filepath.Join(dir, "audit.log")}
	return a, write(a.policy, policyText)
}

func (a *audit) flags() []string {
	return []string{"--audit-policy-file", a.policy, "--audit-log-path", a.log}
}

// mark returns a position in the log: its size now.
func (a *audit) mark() (int64, error) {
	info, err := os.Stat(a.log)
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// since counts the requests of some users after a mark, by verb and resource.
func (a *audit) since(mark int64, of func(user string) bool) (map[string]int, error) {
	f, err := os.Open(a.log)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if _, err := f.Seek(mark, 0); err != nil {
		return nil, err
	}
	counts := map[string]int{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct {
			Stage, Verb, RequestURI string
			User                    struct{ Username string }
			ObjectRef               *struct{ Resource, Subresource string }
		}
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		if !of(e.User.Username) || (e.Verb == "watch") != (e.Stage == "ResponseStarted") {
			continue
		}
		what := e.RequestURI
		if r := e.ObjectRef; r != nil {
			if what = r.Resource; r.Subresource != "" {
				what += "/" + r.Subresource
			}
		}
		counts[e.Verb+" "+what]++
	}
	return counts, lines.Err()
}

func add(all, more map[string]int) map[string]int {
	if all == nil {
		all = map[string]int{}
	}
	for what, n := range more {
		all[what] += n
	}
	return all
}
