package test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// A script owns its root directory ($ROOT), its work directory ($WORK), its cgroup ($CGROUP), the network of its place
// ($PLACE) and the ports that the harness finds for it. Other scripts run beside it, so a command of a script must name
// nothing else on the machine.
var (
	// hostCommand matches the commands that run on the machine itself. Others, such as "berth exec", run in a pod.
	hostCommand = regexp.MustCompile(`^(?:\[[^\]]+\] )*(?:! |\? )?` +
		`(?:exec|until|await-url|exists|rm|cp|mv|mkdir|cmp|symlink)\s`)
	absolute  = regexp.MustCompile("(?:^|[\\s\"'`=(<>|,])(/[\\w.][\\w.\\[\\]*?$({/-]*)")
	fixedPort = regexp.MustCompile(`(?:localhost|127\.0\.0\.1|\[::1\]|hostPort): ?[1-9]\d*`)
	// own matches the absolute paths that any script may name: the paths of its own processes and cgroup, and facts
	// about the machine that no script changes.
	own = regexp.MustCompile(`^/(?:dev/(?:null|zero|full|urandom|loop-control)$|workload$|sys/fs/cgroup/?\$|` +
		`sys/devices/system/|sys/kernel/security/apparmor|` +
		`077$|proc/(?:\$|self/|sys/|mounts$|meminfo$|uptime$|stat$|[1-9]|\[0-9\]\*/cgroup))`)
	// inside matches what a command asks of a pod or of the API server.
	inside = regexp.MustCompile(`\b(?:kubectl|berth) [^|&;']*`)
	// wide matches commands that reach processes, rules or links of others.
	wide = regexp.MustCompile(`\b(?:killall|nft flush|iptables -F|systemctl)\b|\bpkill [^$]*$|\bip link del \w`)
)

func TestScriptsStayInTheirPlace(t *testing.T) {
	for _, path := range scriptFiles(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "[!systemd] skip") || strings.Contains(string(text), "[!vm] skip") {
			continue // the emulated machine runs nothing else
		}
		for i, line := range strings.Split(string(text), "\n") {
			if strings.HasPrefix(line, "-- ") {
				break
			}
			if reach := outside(line); reach != "" {
				t.Errorf("%s:%d: %s is not this script's own: use $ROOT, $WORK, $CGROUP, $PLACE or $PORT",
					path, i+1, reach)
			}
		}
	}
}

// outside returns a path or port in a line of a script that is not of the script's place, or "".
func outside(line string) string {
	if !hostCommand.MatchString(line) {
		return ""
	}
	line = inside.ReplaceAllString(line, "")
	for _, m := range absolute.FindAllStringSubmatch(line, -1) {
		if !own.MatchString(m[1]) {
			return m[1]
		}
	}
	if port := fixedPort.FindString(line); port != "" {
		return port
	}
	return wide.FindString(line)
}

func TestOutside(t *testing.T) {
	for line, want := range map[string]string{
		`exec find /sys/fs/cgroup -name x`:                     "/sys/fs/cgroup",
		`exec sh -c 'ls /sys/fs/cgroup$CGROUP'`:                "",
		`[embedded] ! exec grep x /proc/self/mountinfo`:        "",
		`exec curl http://127.0.0.1:8080/`:                     "127.0.0.1:8080",
		`exec sh -c 'rm -r /run/netns'`:                        "/run/netns",
		`until 'pkill berth'`:                                  "pkill berth'",
		`exec pkill -f 'marker-'$ROOT`:                         "",
		`until 'kubectl get --raw /api/v1/x | grep y'`:         "",
		`berth exec web -- /workload cat /etc/hosts /dev/sda1`: "",
		`exec cat $ROOT/run/x`:                                 "",
	} {
		if got := outside(line); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}
