package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// hack/vuln.sh fails for a vulnerability that the code reaches. It says that nothing was checked if there is no
// database.
func TestVulnerabilitiesFailTheCheck(t *testing.T) {
	const entry = `{"schema_version":"1.3.1","id":"GO-2026-0001","modified":"2026-01-01T00:00:00Z",` +
		`"published":"2026-01-01T00:00:00Z","summary":"A test","details":"A test","affected":[{"package":` +
		`{"name":"k8s.io/utils","ecosystem":"Go"},"ranges":[{"type":"SEMVER","events":[{"introduced":"0"}]}],` +
		`"ecosystem_specific":{"imports":[{"path":"k8s.io/utils/cpuset","symbols":["New"]}]}}]}`
	database := func(files map[string]string) string {
		dir := t.TempDir()
		for name, text := range files {
			path := filepath.Join(dir, name)
			check(t, os.MkdirAll(filepath.Dir(path), 0o755))
			check(t, os.WriteFile(path, []byte(text), 0o600))
		}
		return "file://" + dir
	}
	for name, test := range map[string]struct {
		database string
		fails    bool
		says     string
	}{
		"none": {database(map[string]string{"index/db.json": `{"modified":"2026-01-01T00:00:00Z"}`,
			"index/modules.json": `[]`, "index/vulns.json": `[]`}), false, "no known vulnerability"},
		"one": {database(map[string]string{"index/db.json": `{"modified":"2026-01-01T00:00:00Z"}`,
			"index/modules.json": `[{"path":"k8s.io/utils","vulns":[` +
				`{"id":"GO-2026-0001","modified":"2026-01-01T00:00:00Z"}]}]`,
			"index/vulns.json":     `[{"id":"GO-2026-0001","modified":"2026-01-01T00:00:00Z"}]`,
			"ID/GO-2026-0001.json": entry}), true, "GO-2026-0001"},
		"no database": {"http://127.0.0.1:1", false, "NOT CHECKED: the vulnerability database cannot be reached"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("sh", "../hack/vuln.sh", "./internal/node/machine")
			cmd.Env = append(os.Environ(), "VULNDB="+test.database)
			out, err := cmd.CombinedOutput()
			if (err != nil) != test.fails || !strings.Contains(string(out), test.says) {
				t.Errorf("%v, want a failure %t and %q:\n%s", err, test.fails, test.says, out)
			}
		})
	}
}
