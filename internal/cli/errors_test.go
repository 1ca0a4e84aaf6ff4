package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/servertest"
	"github.com/berth-run/berth/internal/cli/command"
)

// unreadable matches what no user should read: a Go type or value, a wrong format, and a cause without an explanation.
var unreadable = regexp.MustCompile(`\*[a-z]+\.[A-Z]|%!|map\[|<nil>|0x[0-9a-f]{6}|goroutine |` +
	`: context deadline exceeded|\[\{|strconv\.|slog: |ParseAddr`)

// complaints returns what is wrong with the words of a failed command. An error names the verb and the object of the
// command line, which are words, and its cause once. It says what to do next.
func complaints(words string, r result) (all []string) {
	_, text, found := strings.Cut("\n"+r.Err, "\nerror: ") // lines of progress may come before it
	lines := strings.Split(strings.TrimSpace(text), "\n")
	next, last := strings.CutPrefix(lines[len(lines)-1], "next: ")
	switch {
	case r.Status == 0:
		return []string{"no error"}
	case !found:
		return []string{"does not begin with error"}
	case !strings.HasPrefix(strings.ReplaceAll(text, `"`, ""), words):
		all = append(all, "does not name "+words)
	}
	if !last || next == command.AnyNext {
		all = append(all, "no next step")
	}
	if bad := unreadable.FindString(r.Err); bad != "" {
		all = append(all, "contains "+bad)
	}
	for _, line := range lines {
		seen := map[string]bool{}
		for part := range strings.SplitSeq(line, ": ") {
			if part = strings.TrimSpace(part); len(part) > 12 && seen[part] {
				all = append(all, "says twice: "+part)
			}
			seen[part] = true
		}
	}
	return all
}

// named returns the verb and the objects in a command line, and a colon after them. The objects are the words before
// the first flag, or the value of a first flag that names an object.
func named(args []string) string {
	words := args
	if at := slices.IndexFunc(args, func(arg string) bool { return len(arg) > 1 && arg[0] == '-' }); at >= 0 {
		words = slices.Clone(args[:at])
	}
	_, rest, err := newRoot(&app{}).Find(args)
	if err == nil && len(rest) > 1 && slices.Contains([]string{"-f", "-l", "--for"}, rest[0]) {
		words = append(words, rest[1])
	}
	return strings.Join(words, " ") + ":"
}

func TestComplaints(t *testing.T) {
	for text, want := range map[string][]string{
		"error: get pod web: not found\nnext: list the pods\n":           nil,
		"waiting\nerror: get pod web: not found\nnext: list the pods\n":  nil,
		"error: get pod web: not found\n":                                {"no next step"},
		"error: get pod web: not found\nnext: " + command.AnyNext + "\n": {"no next step"},
		"error: not found\nnext: list the pods\n":                        {"does not name get pod web:"},
		"pod not found\n": {"does not begin with error"},
		"error: get pod web: context deadline exceeded\nnext: wait\n":       {"contains : context deadline exceeded"},
		"error: get pod web: pull image web: pull image web: no\nnext: x\n": {"says twice: pull image web"},
		"error: get pod web: read *fs.PathError\nnext: wait\n":              {"contains *fs.P"},
	} {
		if diff := cmp.Diff(want, complaints("get pod web:", result{Err: text, Status: 1})); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

// leaves calls do with the arguments of each command that has no subcommands.
func leaves(cmd *cobra.Command, path []string, do func(cmd *cobra.Command, path []string)) {
	for _, sub := range cmd.Commands() {
		if sub.Name() == "help" || sub.Name() == "completion" {
			continue
		}
		at := slices.Concat(path, []string{sub.Name()})
		if !sub.HasSubCommands() {
			do(sub, at)
		}
		leaves(sub, at, do)
	}
}

// Every command refuses an unknown flag and a wrong number of arguments in the same way.
func TestEveryCommandExplainsWrongUse(t *testing.T) {
	a := servertest.Start(t)
	leaves(newRoot(&app{}), nil, func(cmd *cobra.Command, path []string) {
		r := berth(a, "", slices.Concat(path, []string{"--no-such-flag"})...)
		for _, c := range complaints(named(path), r) {
			t.Errorf("%s --no-such-flag: %s:\n%s", strings.Join(path, " "), c, r.Err)
		}
		tooMany := slices.Concat(path, strings.Fields(strings.Repeat("x ", 9)))
		if cmd.Args == nil || cmd.Args(cmd, tooMany[len(path):]) == nil {
			return // any number will do
		}
		r = berth(a, "", tooMany...)
		for _, c := range complaints(strings.Join(path, " ")+" x x x and ", r) {
			t.Errorf("%s with 9 arguments: %s:\n%s", strings.Join(path, " "), c, r.Err)
		}
	})
}

// errorExits are command lines that fail without an agent, and with one.
var errorExits = []struct{ name, stdin, args string }{
	{"unknown command", "", "frobnicate"},
	{"unknown resource", "", "get bottles"},
	{"unknown format", "", "get pods -o xml"},
	{"name with all namespaces", "", "get pods web -A"},
	{"no such pod", "", "get pods web"},
	{"describe no such pod", "", "describe pod web"},
	{"describe without a name", "", "describe pod"},
	{"log of no such pod", "", "logs web"},
	{"wrong duration", "", "logs web --since yesterday"},
	{"command in no such pod", "", "exec web -- true"},
	{"attach to no such pod", "", "attach web"},
	{"debug no such pod", "", "debug web --image x"},
	{"copy from no such pod", "", "cp web:/etc /none"},
	{"copy without a pod", "", "cp a b"},
	{"forward without a port", "", "port-forward web x"},
	{"delete no such pod", "", "delete pod web"},
	{"apply no such file", "", "apply -f /none.yaml"},
	{"apply a directory", "", "apply -f /"},
	{"run no such file", "", "run /none.yaml"},
	{"explain no such file", "", "explain /none.yaml"},
	{"explain without a file", "", "explain"},
	{"explain a file and the pressure", "", "explain web.yaml --pressure"},
	{"top by an unknown key", "", "top pods --sort size"},
	{"trace no such pod", "", "trace web"},
	{"negative depth", "", "trace web --depth -1"},
	{"compare no start", "", "trace --last 0"},
	{"compare and draw", "", "trace web --last 2 --svg web.svg"},
	{"draw no pod", "", "trace --svg web.svg"},
	{"draw no such pod", "", "trace web --svg web.svg"},
	{"unknown half of top", "", "top disks"},
	{"top of a wrong selector", "", "top pods -l a=b=c"},
	{"sort all by an unknown key", "", "top --sort size"},
	{"logs of no pod", "", "logs"},
	{"logs of a pod and a selector", "", "logs web -l app=web"},
	{"logs of a wrong selector", "", "logs -l a=b=c"},
	{"followed logs of a wrong selector", "", "logs -l a=b=c -f"},
	{"no followed log", "", "logs -l app=web -f --max-log-requests 0"},
	{"negative tail", "", "logs web --tail x"},
	{"events of no pod", "", "events --for service/web"},
	{"events of an empty name", "", "events --for pod/"},
	{"no such object", "", "get configmaps web"},
	{"delete nothing", "", "delete"},
	{"delete no such object", "", "delete configmap web"},
	{"delete in less than no time", "", "delete pod web --grace-period -2"},
	{"apply nothing", "", "apply"},
	{"apply no YAML", "a: [", "apply -f -"},
	{"exec without a command", "", "exec web"},
	{"debug without an image", "", "debug web"},
	{"checkpoint no such pod", "", "checkpoint web"},
	{"restore no such archive", "", "restore /none.tar"},
	{"forward to no such pod", "", "port-forward web 80"},
	{"resize by no amount", "", "resize web --requests cpu=much"},
	{"resize by nothing", "", "resize web"},
	{"condition of no such pod", "", "condition web a=True"},
	{"save nowhere", "", "image save x -o /none/x.tar"},
	{"pull no name", "", "image pull A:b:c"},
	{"agent without its configuration", "", "agent --config /none.yaml"},
	{"copy of no such file", "", "cp /none web:/tmp"},
	{"copy to no path", "", "cp /etc web:"},
	{"load no such archive", "", "image load /none.tar"},
	{"save no such image", "", "image save none:1"},
	{"remove no such image", "", "image rm none:1"},
	{"wrong selector", "", "get pods -l a=b=c"},
	{"wrong field selector", "", "get pods --field-selector color=red"},
	{"resize no such pod", "", "resize web --cpu 1"},
	{"condition without a value", "", "condition web"},
	{"wrong log format", "", "agent --log-format xml"},
	{"wrong log level", "", "agent --log-level loud"},
	{"wrong file to print", "", "init --print all"},
	{"reset without a yes", "", "reset"},
	{"resize twice", "", "resize web --limits cpu=1,cpu=2"},
	{"condition without a status", "", "condition web a"},
	{"object name with all namespaces", "", "get configmaps web -A"},
	{"unknown format of objects", "", "get configmaps -o wide"},
	{"unknown format of an explanation", "", "explain /none.yaml -o xml"},
	{"unknown time", "", "logs web --since-time yesterday"},
	{"command before the dashes", "", "debug web true --image x"},
	{"manifest that is too large", strings.Repeat("# large\n", api.MaxManifest/8+1), "apply -f -"},
	{"root directory that systemd cannot read", "", "init --prefix /none --root-dir /srv/$berth"},
	{"socket that cannot be", "", "get pods --socket /" + strings.Repeat("x", 200)},
	{"socket of nobody", "", "exec web --socket /none.sock -- true"},
}

// TestEveryErrorExitIsReadable runs all command lines and prepared cases that fail. Each error that internal/cli makes
// must be among them.
func TestEveryErrorExitIsReadable(t *testing.T) {
	a := servertest.Start(t)
	none := filepath.Join(t.TempDir(), "none.sock")
	var all strings.Builder
	check := func(name, words string, r result) {
		t.Helper()
		all.WriteString(r.Err)
		for _, c := range complaints(words, r) {
			t.Errorf("%s: %s:\n%s", name, c, r.Err)
		}
		if testing.Verbose() { // for reading them aloud
			t.Logf("%s: exit status %d\n%s", name, r.Status, r.Err)
		}
	}
	for _, test := range errorExits {
		args := strings.Fields(test.args)
		words := named(args)
		if args[0] == "frobnicate" {
			words = "unknown command" // there is no verb
		}
		for where, socket := range map[string]string{"with an agent": a.Socket, "without": none} {
			check(test.name+", "+where, words, berthAt(socket, test.stdin, args...))
		}
	}
	for _, test := range preparedErrors {
		if !test.root || os.Geteuid() == 0 {
			t.Run(test.name, func(t *testing.T) { check(test.name, test.words, test.run(t)) })
		}
	}
	for where, text := range errorSites(t) {
		if !text.MatchString(all.String()) && !slices.Contains(unreached, where) {
			t.Errorf("%s is in no row of errorExits and preparedErrors (%s)", where, text)
		}
	}
}
