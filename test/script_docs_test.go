package test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/berth-run/berth/test/image"
)

// shellBlock matches a block of commands in a page. A word after "sh" is a mark: it says what runs the block, if not a
// script on every machine.
var shellBlock = regexp.MustCompile("(?ms)^```sh(?: ([a-z]+))?\n(.*?)^```$")

// commandBlock is a block of commands in a page.
type commandBlock struct {
	mark string // onlySystemd, onCluster, inClone or a key of slow; "" if a script runs the block on every machine
	text string
}

// blocks returns the blocks of commands in a page.
func blocks(page string) (all []commandBlock, err error) {
	text, err := os.ReadFile(filepath.Join("..", page))
	for _, m := range shellBlock.FindAllStringSubmatch(string(text), -1) {
		all = append(all, commandBlock{m[1], m[2]})
	}
	return all, err
}

// pageBerth stands in for berth in the blocks of a page. It adds what makes a command work in the place of a script,
// and only that: a pod in the foreground ends when it is ready, a log that is followed and the server of the web page
// do not block the commands after them, the workload's image has a program of its own instead of a shell, and a test
// machine may have problems.
const pageBerth = `#!/bin/sh
case "$*" in
"run "*) shift; exec %[1]s --root-dir "$ROOT" run --config "$CONFIG" --exit-when-ready "$@" ;;
"logs -f "*) %[1]s --root-dir "$ROOT" "$@" >>followed 2>&1 & exit ;;
"ui" | "ui --port "*) %[1]s --root-dir "$ROOT" "$@" </dev/null >page 2>&1 & echo $! >page.pid; exit ;;
"exec web -- sh") exec %[1]s --root-dir "$ROOT" exec web -- /workload print "in the pod" ;;
"doctor") %[1]s --root-dir "$ROOT" doctor --config "$CONFIG"; [ $? -le 1 ]; exit ;;
esac
exec %[1]s --root-dir "$ROOT" "$@"
`

// block runs the first block of a page that matches, as it is written there. It uses the script's host ports and agent
// socket. In the machine whose init is systemd, the berth that the page has installed runs.
func (h *harness) block(ts *testscript.TestScript, args []string) {
	match, err := regexp.Compile(args[1])
	ts.Check(err)
	all, err := blocks(args[0])
	ts.Check(err)
	at := slices.IndexFunc(all, func(b commandBlock) bool {
		return (b.mark == "" || b.mark == onlySystemd && onSystemd()) && match.MatchString(b.text)
	})
	if at < 0 {
		ts.Fatalf("%s has no block that can run here and matches %q", args[0], args[1])
	}
	dir := ts.MkAbs(".")
	bin := filepath.Join(dir, "bin")
	ts.Check(os.MkdirAll(bin, 0o755))
	ts.Check(os.MkdirAll(filepath.Join(dir, "examples"), 0o755))
	links := []string{h.archive, filepath.Join(filepath.Dir(h.archive), "guestbook.tar")}
	programs := filepath.Join(dir, "programs")
	ts.Check(os.MkdirAll(programs, 0o755))
	for program, text := range map[string]string{
		"git": "", "make": "", // these tests need a build
		"ssh": "shift 3\nexec \"$@\"\n", // from this machine to itself
	} {
		ts.Check(os.WriteFile(filepath.Join(programs, program), []byte("#!/bin/sh\n"+text), 0o755))
	}
	path := bin + ":" + programs
	if onSystemd() { // the page installs berth
		links, path = append(links, h.bin), "/usr/local/bin:"+programs
	} else {
		ts.Check(os.WriteFile(filepath.Join(bin, "berth"), fmt.Appendf(nil, pageBerth, h.bin), 0o755))
	}
	for _, target := range links {
		err := os.Symlink(target, filepath.Join(bin, filepath.Base(target)))
		if err != nil && !os.IsExist(err) {
			ts.Fatalf("%v", err)
		}
	}
	for _, name := range exampleNames() {
		ts.Check(os.WriteFile(filepath.Join(dir, "examples", name), []byte(exampleFor(ts, name)), 0o644))
	}
	text := strings.NewReplacer("127.0.0.1:8080", "127.0.0.1:"+ts.Getenv("PORT"), "--port 8080",
		"--port "+ts.Getenv("PORT"), "/run/berth/berth.sock", filepath.Join(rootOf(ts), "berth.sock"),
		"./berth_VERSION_amd64.deb", ts.Getenv("PACKAGE")).Replace(all[at].text)
	ts.Check(ts.Exec("sh", "-exc", "PATH="+path+":$PATH\n"+text))
}

// exampleNames lists the manifests in examples.
func exampleNames() (names []string) {
	paths, _ := filepath.Glob("../examples/*.yaml")
	for _, path := range paths {
		names = append(names, filepath.Base(path))
	}
	return names
}

// exampleFor returns an example with the host ports and the registry of a script.
func exampleFor(ts *testscript.TestScript, name string) string {
	text, err := os.ReadFile(filepath.Join("../examples", name))
	ts.Check(err)
	port, port2 := ts.Getenv("PORT"), ts.Getenv("PORT2")
	pairs := []string{"hostPort: 8080", "hostPort: " + port, "registry.example.com", ts.Getenv("REGISTRY")}
	if strings.Contains(string(text), "hostNetwork: true") {
		pairs = append(pairs, "8080", port, "9100", port2)
	}
	return strings.NewReplacer(pairs...).Replace(string(text))
}

// example writes an example to the script's directory.
func example(ts *testscript.TestScript, args []string) {
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(exampleFor(ts, args[0])), 0o644))
}

// debianImage loads an image of unpacked Debian packages.
func (h *harness) debianImage(ts *testscript.TestScript, args []string) {
	archive := ts.MkAbs("debian.tar")
	ts.Check(ts.Exec("sh", "-c", `tar -C "$(sh "$0" "$1")" -cf files.tar .`, filepath.Join(filepath.Dir(h.bin),
		"../hack/unpack.sh"), args[0]))
	ts.Check(image.Pack(archive, args[1], ts.MkAbs("files.tar"), args[2:]...))
	ts.Check(ts.Exec(h.bin, "--root-dir", rootOf(ts), "image", "load", archive))
}

// onlySystemd marks a block that changes the services of the machine. A script runs it in the emulated machine whose
// init is systemd.
const onlySystemd = "systemd"

// runPages are the pages whose blocks are run. A translated page has the blocks of the English one.
func runPages(t *testing.T) []string {
	return slices.DeleteFunc(pages(t), func(page string) bool {
		return originalOf(page) != "" || strings.HasPrefix(page, "docs/adr/")
	})
}

// skip matches a condition under which a script is skipped.
var skip = regexp.MustCompile(`(?m)^\[(\S+)\] skip `)

// placeOf returns the mark of the blocks that a script runs: "" if make test runs the script on every machine with the
// embedded runtime, onlySystemd if it runs in the emulated machine with systemd, onCluster if it runs on a node of a
// cluster. ok is false for other scripts.
func placeOf(path, script, machines string) (mark string, ok bool) {
	name := strings.TrimSuffix(filepath.Base(path), ".txtar")
	if strings.HasPrefix(path, "e2e/") {
		mark = onCluster
	}
	for _, m := range skip.FindAllStringSubmatch(script, -1) {
		switch m[1] {
		case "!embedded", "containerd", "docker", "old-docker":
		case "!systemd":
			mark = onlySystemd
		default:
			return "", false
		}
	}
	return mark, mark != onlySystemd || strings.Contains(machines, `"`+name+`"`)
}

func TestPlaceOfScripts(t *testing.T) {
	for _, test := range []struct {
		path   string
		script string
		mark   string
		ok     bool
	}{
		{"script/web.txtar", "agent start\n", "", true},
		{"script/web.txtar", "[!embedded] skip 'x'\n", "", true},
		{"script/web.txtar", "[embedded] skip 'x'\n", "", false},
		{"script/web.txtar", "[!vm] skip 'x'\n", "", false},
		{"script/web.txtar", "[!exec:criu] skip 'x'\n", "", false},
		{"script/web.txtar", "[!systemd] skip 'x'\n", onlySystemd, true},
		{"e2e/web.txtar", "join\n", onCluster, true},
		{"e2e/containerd/web.txtar", "join\n", onCluster, true},
		{"e2e/web.txtar", "[!vm] skip 'x'\n", "", false},
	} {
		if mark, ok := placeOf(test.path, test.script, `"web"`); mark != test.mark || ok != test.ok {
			t.Errorf("%s: %q: %q %v", test.path, test.script, mark, ok)
		}
	}
	if _, ok := placeOf("script/web.txtar", "[!systemd] skip 'x'\n", `"other"`); ok {
		t.Error("a script runs that no machine starts")
	}
}

// comment matches a comment behind a command.
var comment = regexp.MustCompile(`(?m)\s+#.*$`)

// blocksOfScripts returns the commands of the blocks that scripts run, without comments, by the mark of placeOf. A page
// may repeat the block of another page.
func blocksOfScripts(t *testing.T) map[string][]string {
	machines, err := os.ReadFile("vm/main.go")
	if err != nil {
		t.Fatal(err)
	}
	run := map[string][]string{}
	for _, path := range scriptFiles(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		mark, ok := placeOf(path, string(text), string(machines))
		for _, m := range regexp.MustCompile(`(?m)^block (\S+) '(.*)'$`).FindAllStringSubmatch(string(text), -1) {
			all, err := blocks(m[1])
			if err != nil {
				t.Fatal(err)
			}
			at := slices.IndexFunc(all, func(b commandBlock) bool { // as block and clusterBlock of harness choose it
				return (b.mark == "" && mark != onCluster || b.mark == mark) &&
					regexp.MustCompile(m[2]).MatchString(b.text)
			})
			switch {
			case at < 0:
				t.Errorf("%s: no block of %s matches %q", path, m[1], m[2])
			case ok:
				run[mark] = append(run[mark], comment.ReplaceAllString(all[at].text, ""))
			}
		}
	}
	return run
}

// Every block of commands in a page is run: by a script on every machine, in the emulated one with systemd or on a node
// of a cluster, by TestBlocksInClone, or by TestSlowBlocks.
func TestDocsCommandBlocksAreRun(t *testing.T) {
	run := blocksOfScripts(t)
	used, found := map[string]bool{}, 0
	for _, page := range runPages(t) {
		all, err := blocks(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range all {
			runs := slices.Contains(run[b.mark], comment.ReplaceAllString(b.text, ""))
			if !runs && b.mark != inClone && slow[b.mark] == "" {
				t.Errorf("%s: nothing runs this block with the mark %q:\n%s", page, b.mark, b.text)
			}
			used[b.mark] = true
			found++
		}
	}
	for mark := range slow {
		if !used[mark] {
			t.Errorf("no block has the mark %q", mark)
		}
	}
	if found < 20 {
		t.Errorf("only %d blocks were found", found)
	}
}

var (
	otherBlock = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^ *```$")
	indented   = regexp.MustCompile(`(?m)^    (\S.*)$`)
	command    = regexp.MustCompile(`(?m)^(?:bin/)?(?:berth|apt|curl|dnf|go|install|kubectl|make|ssh|systemctl) `)
)

// Commands stand in blocks that begin with "```sh", so that TestDocsCommandBlocksAreRun sees them. commands.md is
// generated, and TestExamplesOfCommands checks its commands.
func TestDocsCommandsStandInShellBlocks(t *testing.T) {
	for _, page := range runPages(t) {
		if page == "docs/commands.md" {
			continue
		}
		content, err := os.ReadFile(filepath.Join("..", page))
		if err != nil {
			t.Fatal(err)
		}
		text := shellBlock.ReplaceAllString(string(content), "")
		for _, m := range otherBlock.FindAllStringSubmatch(text, -1) {
			if command.MatchString(m[2]) {
				t.Errorf("%s: the block begins with ```%s and has commands:\n%s", page, m[1], m[2])
			}
		}
		for _, m := range indented.FindAllStringSubmatch(otherBlock.ReplaceAllString(text, ""), -1) {
			if command.MatchString(m[1]) {
				t.Errorf("%s: write this command in a block that begins with ```sh: %s", page, m[1])
			}
		}
	}
}

var transcript = regexp.MustCompile(`(?m)^\$ (berth .*)$`)

// A block of output that begins with its command ("$ berth ...") shows a command that a script runs.
func TestDocsTranscriptsAreOfScripts(t *testing.T) {
	run := map[string]bool{}
	for _, script := range scriptFiles(t) {
		text, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			run[strings.TrimSuffix(line, "\n")] = true
		}
	}
	found := 0
	for _, page := range runPages(t) {
		text, err := os.ReadFile(filepath.Join("..", page))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range transcript.FindAllStringSubmatch(string(text), -1) {
			found++
			if !run[m[1]] {
				t.Errorf("%s: no script runs %q", page, m[1])
			}
		}
	}
	if found == 0 {
		t.Error("no transcript was found")
	}
}

// README shows one start twice: as the picture at its top and as text.
func TestDocsPictureShowsTheStartOfREADME(t *testing.T) {
	picture, err := os.ReadFile("../docs/waterfall.svg")
	if err != nil {
		t.Fatal(err)
	}
	title := regexp.MustCompile(`<title>(.* ready after .*)</title>`).FindSubmatch(picture)
	start := regexp.MustCompile(`>(pod start, .*)</text>`).FindSubmatch(picture)
	if title == nil || start == nil {
		t.Fatal("docs/waterfall.svg has no headline")
	}
	headline := fmt.Sprintf("```\n%s\n%s\n", title[1], start[1])
	for _, page := range []string{"README.md", "README.zh-CN.md"} {
		text, err := os.ReadFile(filepath.Join("..", page))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), headline) {
			t.Errorf("%s has no block that begins with the headline of docs/waterfall.svg:\n%s", page, headline)
		}
	}
}

// A script runs each example, and the index of the examples lists it.
func TestDocsExamplesAreRun(t *testing.T) {
	index, err := os.ReadFile("../examples/README.md")
	if err != nil {
		t.Fatal(err)
	}
	var run []string
	for _, script := range scriptFiles(t) {
		text, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^example (\S+)$`).FindAllStringSubmatch(string(text), -1) {
			run = append(run, m[1])
		}
	}
	for _, page := range runPages(t) {
		all, err := blocks(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range all {
			for _, m := range regexp.MustCompile(`examples/(\S+\.yaml)`).FindAllStringSubmatch(b.text, -1) {
				if b.mark == "" {
					run = append(run, m[1])
				}
			}
		}
	}
	names := exampleNames()
	if len(names) < 11 {
		t.Errorf("only %d examples were found", len(names))
	}
	for _, name := range names {
		if !slices.Contains(run, name) {
			t.Errorf("no script runs examples/%s", name)
		}
		if !strings.Contains(string(index), "("+name+")") {
			t.Errorf("examples/README.md does not list %s", name)
		}
	}
}
