package test

import (
	"os"
	"os/exec"
	"regexp"
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
	for _, file := range []string{"../packaging/berth.service", "../docs/join.md"} {
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

// docs/security.md has the figure of systemd's own check.
func TestUnitHasTheFigureOfThePage(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	out, err := exec.Command(analyze, "security", "--offline=true", "--no-pager",
		"../packaging/berth.service").CombinedOutput()
	check(t, err)
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
