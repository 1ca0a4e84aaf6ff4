package test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// reachesContainers are the systemd settings that a node agent cannot have. The first ones give the service a mount
// namespace, which hides the mounts of volumes from the host and from the next agent. Processes of containers inherit
// the others.
var reachesContainers = regexp.MustCompile(`^(Protect[A-Za-z]*|Private[A-Za-z]*|Read(Only|Write)Paths|Inaccessible\w*` +
	`|TemporaryFileSystem|Bind(ReadOnly)?Paths|Root(Directory|Image)|MountFlags|MountAPIVFS|ProcSubset|(No)?ExecPaths` +
	`|DynamicUser|User|Group|NoNewPrivileges|SystemCall\w*|Restrict\w*|LockPersonality|MemoryDenyWriteExecute` +
	`|CapabilityBoundingSet|AmbientCapabilities|SecureBits|UMask|KeyringMode|Personality|(App|SELinux)\w*)=`)

// Containers are descendants of the service.
func TestUnitReachesNoContainer(t *testing.T) {
	for _, file := range []string{"../internal/cli/setup/berth.service", "../docs/join.md"} {
		text, err := os.ReadFile(file)
		check(t, err)
		for line := range strings.Lines(string(text)) {
			if reachesContainers.MatchString(line) {
				t.Errorf("%s has %s, which would change what containers can do; see docs/security.md", file,
					strings.TrimSpace(line))
			}
		}
	}
	for line, want := range map[string]bool{"ProtectSystem=strict": true, "NoNewPrivileges=yes": true,
		"Delegate=yes":   false,
		"Restart=always": false, "RestartSec=1": false, "RestrictNamespaces=yes": true, "UMask=0077": true} {
		if got := reachesContainers.MatchString(line); got != want {
			t.Errorf("%s: refused %t, want %t", line, got, want)
		}
	}
}

// analyze returns what systemd says about the security of the unit. The systemd of the machine may be of another
// version, or missing, so Debian's package is used without being installed.
func analyze(t *testing.T, flags ...string) []byte {
	t.Helper()
	unpacked, err := exec.Command("sh", "../hack/unpack.sh", "systemd").Output()
	check(t, err)
	dir := strings.TrimSpace(string(unpacked))
	libraries, err := filepath.Glob(filepath.Join(dir, "usr/lib/*-linux-gnu"))
	check(t, err)
	libraries = append(libraries, libraries[0]+"/systemd")
	cmd := exec.Command(filepath.Join(dir, "usr/bin/systemd-analyze"), slices.Concat(
		[]string{"security", "--offline=true", "--no-pager", "../internal/cli/setup/berth.service"}, flags)...)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+strings.Join(libraries, ":"))
	out, err := cmd.Output()
	check(t, err)
	return out
}

// settings returns the names of the settings that systemd checks in the unit. A row of its answer has one or more.
func settings(t *testing.T) []string {
	t.Helper()
	var rows []struct{ Name string }
	check(t, json.Unmarshal(analyze(t, "--json=short"), &rows))
	var names []string
	for _, r := range rows {
		for _, setting := range regexp.MustCompile(`([A-Za-z]+)=`).FindAllStringSubmatch(r.Name, -1) {
			names = append(names, setting[1])
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// docs/security.md says of every setting why the unit does not have it, or that its default is safe.
func TestUnitPageExplainsEverySetting(t *testing.T) {
	page, err := os.ReadFile("../docs/security.md")
	check(t, err)
	_, section, _ := strings.Cut(string(page), "## The systemd unit")
	section, _, _ = strings.Cut(section, "\n## ")
	names := settings(t)
	if len(names) < 30 {
		t.Errorf("systemd checks %v only", names)
	}
	for _, name := range names {
		if !regexp.MustCompile(`\b` + name + `\b`).MatchString(section) {
			t.Errorf("docs/security.md does not explain the setting %s", name)
		}
	}
}

// docs/security.md has the figure of systemd's own check.
func TestUnitHasTheFigureOfThePage(t *testing.T) {
	out := analyze(t)
	figure := regexp.MustCompile(`Overall exposure level for berth.service: ([0-9.]+) `).FindStringSubmatch(string(out))
	if figure == nil {
		t.Fatalf("no figure in:\n%s", out)
	}
	page, err := os.ReadFile("../docs/security.md")
	check(t, err)
	if want := "gives " + figure[1] + " of 10"; !strings.Contains(string(page), want) {
		t.Errorf("docs/security.md does not say that it %s", want)
	}
}
