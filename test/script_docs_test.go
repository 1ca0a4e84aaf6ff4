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

// shellBlock matches a block of commands in a page. A word after "sh" is a mark of notRun.
var shellBlock = regexp.MustCompile("(?ms)^```sh(?: ([a-z]+))?\n(.*?)^```$")

// commandBlock is a block of commands in a page.
type commandBlock struct {
	mark string // a key of notRun; "" if a script runs the block
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
// and only that: a pod in the foreground ends when it is ready, a log that is followed does not block the commands
// after it, the workload's image has a program of its own instead of a shell, and a test machine may have problems.
const pageBerth = `#!/bin/sh
case "$*" in
"run "*) shift; exec %[1]s --root-dir "$ROOT" run --config "$CONFIG" --exit-when-ready "$@" ;;
"logs -f "*) %[1]s --root-dir "$ROOT" "$@" >>followed 2>&1 & exit ;;
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
		return (b.mark == "" || b.mark == "systemd" && onSystemd()) && match.MatchString(b.text)
	})
	if at < 0 {
		ts.Fatalf("%s has no block that can run here and matches %q", args[0], args[1])
	}
	dir := ts.MkAbs(".")
	bin := filepath.Join(dir, "bin")
	ts.Check(os.MkdirAll(bin, 0o755))
	ts.Check(os.MkdirAll(filepath.Join(dir, "examples"), 0o755))
	for _, program := range []string{"git", "make"} { // these tests need a build
		ts.Check(os.WriteFile(filepath.Join(bin, program), []byte("#!/bin/sh\n"), 0o755))
	}
	links := []string{h.archive, filepath.Join(filepath.Dir(h.archive), "guestbook.tar")}
	path := bin
	if onSystemd() { // the page installs berth
		links, path = append(links, h.bin), "/usr/local/bin:"+bin
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
	text := strings.NewReplacer("127.0.0.1:8080", "127.0.0.1:"+ts.Getenv("PORT"), "/run/berth/berth.sock",
		filepath.Join(rootOf(ts), "berth.sock")).Replace(all[at].text)
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

// notRun are the marks of blocks that no script runs, with the reason. A mark is the word after "sh" in the block's
// first line.
var notRun = map[string]string{
	"bench":   "a measurement needs a quiet machine, and takes minutes",
	"build":   "the tests need what these commands build, and CI consists of these targets",
	"cluster": "it replaces the kubelet of a machine: the scripts of test/e2e start agents with these flags",
	"release": "make packages builds a package, and installs it in a root file system of its own",
	"systemd": "it changes the services of the machine: installed.txtar runs the tutorial's in an emulated machine",
	"ui":      "it runs until Ctrl-C, and the second one needs two machines: test/browser opens the page",
}

// runPages are the pages whose blocks are run. A translated page has the blocks of the English one.
func runPages(t *testing.T) []string {
	return slices.DeleteFunc(pages(t), func(page string) bool {
		return originalOf(page) != "" || strings.HasPrefix(page, "docs/adr/")
	})
}

// Every block of commands in a page is run by a script, or has a mark with a reason.
func TestDocsCommandBlocksAreRun(t *testing.T) {
	run := map[string][]*regexp.Regexp{} // by page
	for _, script := range scriptFiles(t) {
		text, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^block (\S+) '(.*)'$`).FindAllStringSubmatch(string(text), -1) {
			run[m[1]] = append(run[m[1]], regexp.MustCompile(m[2]))
		}
	}
	used, found := map[string]bool{}, 0
	for _, page := range runPages(t) {
		all, err := blocks(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range all {
			runs := slices.ContainsFunc(run[page], func(r *regexp.Regexp) bool { return r.MatchString(b.text) })
			switch {
			case b.mark != "" && notRun[b.mark] == "":
				t.Errorf("%s: the mark %q is not in notRun:\n%s", page, b.mark, b.text)
			case b.mark == "" && !runs:
				t.Errorf("%s: no script runs the block\n%s", page, b.text)
			}
			used[b.mark] = true
			found++
		}
	}
	for mark := range notRun {
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
