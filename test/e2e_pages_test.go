package test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	corev1 "k8s.io/api/core/v1"
)

// onCluster marks a block that needs a cluster and a kubelet, or replaces the kubelet. A script of test/e2e runs it.
const onCluster = "cluster"

// standIn is a program in a block of a page. It asks the test to do the work and ends with the test's answer.
const standIn = `#!/bin/sh
exec curl -sS --fail-with-body --max-time 600 --unix-socket %s --data-binary "%s $*" http://test/
`

// clusterBlock runs the first block of a page that matches and has the mark onCluster, as it is written there. It has
// the program, the unit and the configuration that the page shows, in the script's directory: the paths of the machine
// lie below it. The kubelet, the agent and the cluster are real. Stand-ins replace systemctl, because the machine's
// systemd is not the script's own, and Ctrl-C of a user: "berth agent" ends when its node is ready.
func (h *harness) clusterBlock(ts *testscript.TestScript, args []string) {
	match, err := regexp.Compile(args[1])
	ts.Check(err)
	all, err := blocks(args[0])
	ts.Check(err)
	at := slices.IndexFunc(all, func(b commandBlock) bool { return b.mark == onCluster && match.MatchString(b.text) })
	if at < 0 {
		ts.Fatalf("%s has no block with the mark %s that matches %q", args[0], onCluster, args[1])
	}
	place := h.placeFiles(ts, args[0], all[at].text)
	requests := make(chan request)
	socket := filepath.Join(rootOf(ts), "commands.sock")
	end := listenForCommands(ts, socket, requests)
	defer end()
	programs := ts.MkAbs("programs")
	ts.Check(os.MkdirAll(programs, 0o755))
	for _, name := range []string{"systemctl", "berth"} {
		ts.Check(os.WriteFile(filepath.Join(programs, name), fmt.Appendf(nil, standIn, socket, name), 0o755))
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, "sh", "-exc", place(all[at].text))
	cmd.Dir, cmd.Stdout, cmd.Stderr = ts.MkAbs("."), &out, &out
	cmd.Env = append(os.Environ(), "PATH="+programs+":"+ts.Getenv("PATH"))
	ts.Check(cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case r := <-requests:
			h.command(ts, r.line, place)
			close(r.done)
		case err := <-ended:
			ts.Logf("%s", out.String())
			if err != nil {
				fail(ts, "the block of %s ended with %v", args[0], err)
			}
			return
		}
	}
}

// request is a command line of a stand-in. The test closes done after it has done the work.
type request struct {
	line string
	done chan struct{}
}

// listenForCommands receives the command lines of stand-ins until end.
func listenForCommands(ts *testscript.TestScript, socket string, requests chan<- request) (end func()) {
	l, err := net.Listen("unix", socket)
	ts.Check(err)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		line, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		one := request{string(line), make(chan struct{})}
		select {
		case requests <- one:
		case <-r.Context().Done():
			return
		}
		select {
		case <-one.done:
		case <-r.Context().Done():
		}
	})}
	go func() { _ = s.Serve(l) }()
	return func() { _ = s.Close() }
}

// fenced matches a block of a page that begins with "```" and a language.
func fenced(language string) *regexp.Regexp {
	return regexp.MustCompile("(?ms)^```" + language + "\n(.*?)^```$")
}

// execStart matches the command line in a unit.
var execStart = regexp.MustCompile(`(?m)^ExecStart=.*$`)

// placeFiles writes what a block of a page uses: the program, the kubeconfigs, and the unit and the configuration that
// the page shows. It installs the program and the unit unless the block does. place replaces the paths of the machine
// by paths of the script.
func (h *harness) placeFiles(ts *testscript.TestScript, page, block string) (place func(string) string) {
	dir := ts.MkAbs(".")
	place = strings.NewReplacer("/usr/local/bin/", dir+"/usr/local/bin/", "/etc/", dir+"/etc/", "/var/lib/kubelet",
		rootOf(ts)).Replace
	for _, sub := range []string{"usr/local/bin", "etc/systemd/system", "etc/kubernetes/pki"} {
		ts.Check(os.MkdirAll(filepath.Join(dir, sub), 0o755))
	}
	text, err := os.ReadFile(filepath.Join("..", page))
	ts.Check(err)
	n := nodeOf(ts)
	for to, from := range map[string]string{"berth": h.bin, "bootstrap.kubeconfig": ts.Getenv("BOOTSTRAP"),
		"etc/kubernetes/kubelet.conf": ts.Getenv("NODE"), "etc/kubernetes/pki/ca.crt": n.cluster.CA()} {
		to = filepath.Join(dir, to)
		ts.Check(os.RemoveAll(to))
		ts.Check(os.Symlink(from, to))
	}
	units := fenced("ini").FindAllStringSubmatch(string(text), -1)
	if len(units) == 0 {
		return place // the page installs no unit
	}
	ts.Check(os.WriteFile(filepath.Join(dir, "berth.service"), []byte(units[0][1]), 0o644))
	config := fenced("yaml").FindStringSubmatch(string(text))
	ts.Check(os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(withConfig(ts, place(config[1]))), 0o644))
	if len(units) > 1 && !strings.Contains(block, "install ") { // the command line on a node that had a kubelet
		program := filepath.Join(dir, "usr/local/bin/berth")
		ts.Check(os.RemoveAll(program))
		ts.Check(os.Symlink(h.bin, program))
		unit := execStart.ReplaceAllLiteralString(units[0][1], execStart.FindString(units[1][1]))
		ts.Check(os.WriteFile(filepath.Join(dir, "etc/systemd/system/berth.service"), []byte(unit), 0o644))
	}
	return place
}

// withConfig adds to a page's configuration what a script's agent needs: the lines of $CONFIG about other fields, but
// no serving certificate.
func withConfig(ts *testscript.TestScript, page string) string {
	field := func(line string) string {
		name, _, _ := strings.Cut(line, ":")
		return name
	}
	given := []string{"tlsCertFile", "tlsPrivateKeyFile"}
	for line := range strings.Lines(page) {
		given = append(given, field(line))
	}
	for line := range strings.Lines(ts.ReadFile(ts.Getenv("CONFIG"))) {
		if !slices.Contains(given, field(line)) {
			page += line
		}
	}
	return page
}

// command does the work of a command line in a block.
func (h *harness) command(ts *testscript.TestScript, line string, place func(string) string) {
	n, d := nodeOf(ts), ts.Value(daemonKey{}).(*daemon)
	agent := func(words []string) {
		h.execute(ts, d, slices.Concat(words, []string{"--root-dir", rootOf(ts), "--hostname-override", nodeName,
			"--node-ip", n.address}, h.listens(ts)))
		h.ready(ts)
		n.awaitReady(ts, corev1.ConditionTrue, time.Time{})
	}
	if flags, ok := strings.CutPrefix(line, "berth agent "); ok {
		agent(append([]string{h.bin, "agent"}, strings.Fields(flags)...))
		ts.Check(d.end(syscall.SIGINT))
		return
	}
	switch line {
	case "systemctl stop kubelet", "systemctl disable --now kubelet":
		h.kubelet(ts, []string{"stop"})
	case "systemctl enable --now kubelet":
		h.kubelet(ts, []string{"start"})
	case "systemctl disable --now berth":
		h.agent(ts, []string{"stop"})
	case "systemctl enable --now berth":
		unit := ts.ReadFile(ts.MkAbs("etc/systemd/system/berth.service"))
		_, start, _ := strings.Cut(execStart.FindString(unit), "=")
		agent(strings.Fields(place(start)))
	default:
		ts.Fatalf("a block of a page has the command %q, which the test does not know", line)
	}
}
