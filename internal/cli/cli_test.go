package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/api/server"
	"github.com/berth-run/berth/internal/api/servertest"
	"github.com/berth-run/berth/internal/base/golden"
	"github.com/berth-run/berth/internal/cli/command"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/record/event"
	"github.com/berth-run/berth/internal/record/timeline"
)

// result is the outcome of a command line.
type result struct {
	Out, Err string
	Status   int
}

// berth runs a command line against the agent of a test.
func berth(a *servertest.Agent, stdin string, args ...string) result {
	return berthAt(a.Socket, stdin, args...)
}

// berthAt runs a command line against the agent at a socket.
func berthAt(socket, stdin string, args ...string) result {
	var out, stderr bytes.Buffer
	status := Main(append([]string{"--socket", socket}, args...), strings.NewReader(stdin), &out, &stderr)
	return result{out.String(), stderr.String(), status}
}

func running(a *servertest.Agent, name string, containers ...string) *corev1.Pod {
	p := servertest.Pod(name, containers...)
	servertest.Run(p)
	return a.Put(p)
}

func podKey(p *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCommands(t *testing.T) {
	a := servertest.Start(t)
	p := running(a, "web", "app", "side")
	running(a, "api", "app")
	for i, c := range []string{"app", "side"} {
		a.WriteLog(t, p, c, 0, "one from "+c, "two from "+c)
		a.Events.Event(event.ContainerRef(p, containerAt(p, i)), corev1.EventTypeNormal, "Started", "Started container")
	}
	a.SetImages(api.Image{ID: "sha256:0123", Tags: []string{"app:v1"}, Size: 1000})
	a.SetStatus(api.Status{
		Node: "node",
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
			{Type: corev1.NodeDiskPressure, Status: corev1.ConditionTrue, Message: "little is left"}},
		Problems: []api.Problem{{Origin: "web.yaml", Message: "line 3: unknown field"}},
	})
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	a.SetTimelines(timeline.Timeline{Namespace: "default", Name: "web", UID: p.UID, What: "pod start", Start: start,
		End: start.Add(time.Second), Read: start,
		Spans: []timeline.Span{{ID: "1", Name: "pod start", Start: start, End: start.Add(time.Second)}}})
	archive := file(t, "app.tar", "a tar")
	noFile := filepath.Join(t.TempDir(), "none.yaml")
	const both = "Defaulted to container app of [app side]\n"
	tests := []struct {
		args string
		in   string
		want result
	}{
		{args: "get pods",
			want: result{
				Out: "NAME   READY   STATUS    RESTARTS   AGE\napi    1/1     Running   0          3h\nweb    2/2    " +
					" Running   0          3h\n"}},
		{args: "get pod web -o wide",
			want: result{
				Out: "NAME   READY   STATUS    RESTARTS   AGE   IP         NODE\nweb    2/2     Running   0          " +
					"3h    10.0.0.7   node\n"}},
		{args: "get pods -A -o name", want: result{Out: "pod/api\npod/web\n"}},
		{args: "get pods -n far", want: result{Err: "No pods found in namespace far\n"}},
		{args: "get pods -A -n far",
			want: result{
				Err: "error: get pods: if any flags in the group [namespace all-namespaces] are set none of " +
					"the others can be; " +
					"[all-namespaces namespace] were all set\nnext: see \"berth get pods --help\"\n", Status: 1}},
		{args: "get pods web -A",
			want: result{Err: "error: get pods web: a pod name needs a single namespace\nnext: leave out " +
				"-A, or the name\n",
				Status: 1}},
		{args: "get pod none",
			want: result{
				Err: "error: get pods none: pods \"default/none\" not found\nnext: list the pods of this " +
					"node with \"berth get " +
					"pods -A\"\n", Status: 1}},
		{args: "get nodes",
			want: result{
				Err: "error: get nodes: the agent has no resource \"nodes\"\nnext: it has pods, events, " +
					"images, problems, " +
					"configmaps, secrets, persistentvolumeclaims, persistentvolumes and runtimeclasses\n", Status: 1}},
		{args: "get pods -o xml",
			want: result{
				Err: "error: get pods: invalid argument \"xml\" for \"-o, --output\" flag: use one of json, " +
					"yaml, wide, " +
					"name\nnext: see \"berth get pods --help\"\n", Status: 1}},
		{args: "get pods a b",
			want: result{
				Err: "error: get pods a b: accepts at most 1 arg(s), received 2\nnext: usage: berth get " +
					"pods [NAME] [flags]\n",
				Status: 1}},
		{args: "get events --field-selector involvedObject.fieldPath=spec.containers{app}",
			want: result{
				Out: "LAST SEEN   TYPE     REASON    OBJECT    MESSAGE\n2d2h        Normal   Started   pod/web   " +
					"Started container\n"}},
		{args: "events --for pod/api", want: result{Err: "No events found in namespace default\n"}},
		{args: "events --for node/x",
			want: result{Err: "error: events node/x: \"node/x\" is not a pod\nnext: write NAME or pod/NAME\n",
				Status: 1}},
		{args: "get images", want: result{Out: "IMAGE    IMAGE ID   SIZE\napp:v1   0123       1.0kB\n"}},
		{args: "image ls -o yaml",
			want: result{
				Out: "---\napiVersion: berth.run/v1\nitems:\n- id: sha256:0123\n  size: 1000\n  tags:\n  - " +
					"app:v1\nkind: ImageList\n"}},
		{args: "image load " + archive, want: result{Out: "loaded app:v1\n"}},
		{args: "image load -", in: "another", want: result{Out: "loaded app:v1\n"}},
		{args: "image load " + noFile,
			want: result{Err: "error: image load " + noFile + ": open " + noFile +
				": no such file or directory\nnext: give the path of a tar file, or - for standard input\n",
				Status: 1}},
		{args: "get problems",
			want: result{
				Out: "ORIGIN                   SINCE       PROBLEM\ncondition DiskPressure   <unknown>   little is " +
					"left\nweb.yaml                 <unknown>   line 3: unknown field\n"}},
		{args: "logs web", want: result{Out: "one from app\ntwo from app\n", Err: both}},
		{args: "logs pod/web -c side --tail 1 --timestamps",
			want: result{Out: "2026-03-01T12:00:00.000000001Z two from side\n"}},
		{args: "logs web --all-containers --prefix --tail=1",
			want: result{Out: "[pod/web/app] two from app\n[pod/web/side] two from side\n"}},
		{args: "logs web -c app --since-time yesterday",
			want: result{
				Err: "error: logs web: --since-time \"yesterday\" is not a time\nnext: write it like " +
					"2006-01-02T15:04:05Z\n",
				Status: 1}},
		{args: "logs api --previous",
			want: result{
				Err: "error: logs api: previous terminated container \"app\" in pod \"api\" not " +
					"found\nnext: it has not been " +
					"restarted; leave out --previous\n", Status: 1}},
		{args: "exec api -- echo hello", want: result{Out: "hello\n"}},
		{args: "exec web -c side -i -- cat", in: "input", want: result{Out: "input"}},
		{args: "exec api -- fail 42", want: result{Err: "failed\n", Status: 42}},
		{args: "exec api echo",
			want: result{
				Err: "error: exec api echo: expected one pod, --, and a command\nnext: usage: berth exec POD [-c " +
					"CONTAINER] [-i] [-t] " +
					"-- COMMAND... [flags]\n", Status: 1}},
		{args: "attach web -c side", want: result{}},
		{args: "attach web -i",
			want: result{Err: both +
				"error: attach web: attach to pod default/web: container \"app\" of pod default/web has no " +
				"standard input\nnext: " +
				"attach without -i, or set stdin: true in its manifest\n", Status: 1}},
		{args: "attach web -c none",
			want: result{
				Err: "error: attach web: attach to pod default/web: container \"none\" is not in pod " +
					"default/web\nnext: its " +
					"containers: app, side\n", Status: 1}},
		{args: "port-forward web 99999",
			want: result{
				Err: "error: port-forward web 99999: port \"99999\": it is not between 1 and 65535\nnext: " +
					"write [LOCAL:]PORT, such " +
					"as 8080:80\n", Status: 1}},
		{args: "port-forward web 80:http",
			want: result{
				Err: "error: port-forward web 80:http: port \"80:http\": pod default/web names no " +
					"ports\nnext: write [LOCAL:]PORT, such " +
					"as 8080:80\n", Status: 1}},
		{args: "port-forward web x:80",
			want: result{
				Err: "error: port-forward web x:80: port \"x:80\": the local port is not a number up to " +
					"65535\nnext: write " +
					"[LOCAL:]PORT, such " +
					"as 8080:80\n", Status: 1}},
		{args: "cp a b",
			want: result{
				Err: "error: cp a b: expected one path in a pod and one on this machine\nnext: write " +
					"POD:PATH for " +
					"the path in a " +
					"pod and ./PATH for the other\n", Status: 1}},
		{args: "cp web:/a api:/b",
			want: result{
				Err: "error: cp web:/a api:/b: expected one path in a pod and one on this machine\nnext: " +
					"write POD:PATH for " +
					"the path in a " +
					"pod and ./PATH for the other\n", Status: 1}},
		{args: "cp web: b",
			want: result{Err: "error: cp \"web:\" b: \"web:\" is not a path in a pod\nnext: write " +
				"POD:PATH\n", Status: 1}},
		{args: "cp none:/a b",
			want: result{
				Err: "error: cp none:/a b: pods \"default/none\" not found\nnext: list the pods of this " +
					"node with \"berth get " +
					"pods -A\"\n", Status: 1}},
		{args: "trace",
			want: result{
				Out: "NAMESPACE   POD   STATE   TOOK   AGE   PROBLEM\ndefault     web   ready   1s     AGE\n"}},
		{args: "trace web --depth -1",
			want: result{Err: "error: trace web: --depth -1 is negative\nnext: give a number of levels, or " +
				"0 for all\n",
				Status: 1}},
		{args: "describe web", want: result{Out: "Name:             web\n"}},
		{args: "describe pod",
			want: result{Err: "error: describe pod: expected one pod, got 0\nnext: write pod NAME, or " +
				"pod/NAME\n", Status: 1}},
		{args: "frobnicate",
			want: result{Err: "error: unknown command \"frobnicate\" for \"berth\"\nnext: see \"berth --help\"\n",
				Status: 1}},
		{args: "agent --log-format xml",
			want: result{Err: "error: agent: --log-format \"xml\" is unknown\nnext: use text or " +
				"json\n", Status: 1}},
		{args: "agent --node-ip here",
			want: result{
				Err: "error: agent: invalid argument \"here\" for \"--node-ip\" flag: unable to parse IP" +
					"\nnext: see \"berth agent --help\"\n", Status: 1}},
		{args: "runtime",
			want: result{Err: "error: runtime: required flag(s) \"listen\" not set\nnext: see \"berth " +
				"runtime --help\"\n",
				Status: 1}},
	}
	for _, tt := range tests {
		t.Run(tt.args, func(t *testing.T) {
			got := berth(a, tt.in, strings.Fields(tt.args)...)
			switch tt.args {
			case "trace":
				got.Out = regexp.MustCompile(`AGE +PROBLEM`).ReplaceAllString(
					regexp.MustCompile(`1s     .*`).ReplaceAllString(got.Out, "1s     AGE"), "AGE   PROBLEM")
			case "describe web":
				got.Out = got.Out[:strings.Index(got.Out, "\n")+1] // package printer tests the rest
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	if got := string(a.Loaded()); got != "another" {
		t.Errorf("loaded %q", got)
	}
}

func containerAt(p *corev1.Pod, i int) (c pod.Container) {
	c.Container = &p.Spec.Containers[i]
	c.Index = i
	return c
}

func TestStructuredOutput(t *testing.T) {
	a := servertest.Start(t)
	running(a, "web", "app")
	var p corev1.Pod
	if err := json.Unmarshal([]byte(berth(a, "", "get", "pods", "web", "-o", "json").Out),
		&p); err != nil || p.Name != "web" || p.Kind != "Pod" {
		t.Errorf("json: %v %s", err, p.Name)
	}
	var list corev1.PodList
	if err := yaml.Unmarshal([]byte(berth(a, "", "get", "pods", "-o", "yaml").Out),
		&list); err != nil || len(list.Items) != 1 || list.Kind != "PodList" {
		t.Errorf("yaml: %v", err)
	}
}

// get -w shows the list first, and then every change.
func TestGetWatch(t *testing.T) {
	a := servertest.Start(t)
	running(a, "web", "app")
	out, w := io.Pipe()
	status := make(chan int, 1)
	go func() {
		defer func() { _ = w.Close() }()
		status <- Main([]string{"--socket", a.Socket, "get", "pods", "-w"}, nil, w, io.Discard)
	}()
	lines := bufio.NewScanner(out)
	next := func() string {
		lines.Scan()
		return lines.Text()
	}
	got := []string{next(), next()}
	running(a, "api", "app")
	got = append(got, next())
	want := []string{"NAME   READY   STATUS    RESTARTS   AGE", "web    1/1     Running   0          3h",
		"api    1/1     Running   0          3h"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := a.Stop(); err != nil {
		t.Error(err)
	}
	if got := <-status; got != 1 {
		t.Errorf("status %d after the agent's end", got)
	}
}

func TestApply(t *testing.T) {
	a := servertest.Start(t)
	two := file(t, "two.yaml", "metadata: {name: a}\n---\nmetadata: {name: b}\n")
	bad := file(t, "bad.yaml", "metadata: {title: c}\n")
	tests := []struct {
		args []string
		in   string
		want result
	}{
		{args: []string{"-f", two, "--dry-run"},
			want: result{Out: "pod/a created (dry run)\npod/b created (dry run)\n"}},
		{args: []string{"-f", two}, want: result{Out: "pod/a created\npod/b created\n"}},
		{args: []string{"-f", "-", "-n", "far", "-o", "name"}, in: "metadata: {name: c}", want: result{Out: "pod/c\n"}},
		{args: []string{"-f", bad, "-f", two}, want: result{
			Out: "pod/a configured\npod/b configured\n", Status: 1,
			Err: "error: apply " + bad + " " + two + ": " + bad + ": line 1: metadata.title: unknown field\n" +
				"next: correct the manifest\n",
		}},
		{args: nil,
			want: result{Err: "error: apply: required flag(s) \"filename\" not set\nnext: see \"berth apply " +
				"--help\"\n",
				Status: 1}},
		{args: []string{"-f", filepath.Dir(two)}, want: result{Status: 1,
			Err: "error: apply " + filepath.Dir(two) + ": read manifest: " + filepath.Dir(two) +
				" is a directory\nnext: name its files, or let an agent watch it: staticPodPath in the " +
				"configuration\n"}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, berth(a, tt.in, append([]string{"apply"}, tt.args...)...)); diff != "" {
			t.Errorf("apply %q (-want +got):\n%s", tt.args, diff)
		}
	}
	want := []server.ApplyOptions{
		{Origin: two, Keep: true, DryRun: true}, {Origin: two, Keep: true}, {Origin: "-", Namespace: "far", Keep: true},
		{Origin: bad, Keep: true}, {Origin: two, Keep: true},
	}
	if diff := cmp.Diff(want, a.Applied()); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
}

func TestDelete(t *testing.T) {
	a := servertest.Start(t)
	for _, name := range []string{"a", "b", "c", "d"} {
		running(a, name, "app")
	}
	manifest := file(t, "d.yaml", "metadata: {name: d}")
	for _, tt := range []struct {
		args string
		want result
	}{
		{"pod a --grace-period 5", result{Out: "pod/a deleted\n"}},
		{"pod/b pod/c --wait=false", result{Out: "pod/b deleted\npod/c deleted\n"}},
		{"-f " + manifest, result{Out: "pod/d deleted\n"}},
		{
			"pod a", result{
				Err: "error: delete pod a: pods \"default/a\" not found\nnext: list the pods of this node " +
					"with \"berth get " +
					"pods -A\"\n", Status: 1}},
		{"pod a --ignore-not-found", result{}},
		{
			"pod", result{
				Err: "error: delete pod: no pod, object or file is named\nnext: usage: berth delete pod " +
					"NAME... | KIND " +
					"NAME... | -f " +
					"FILE [flags]\n", Status: 1}},
		{"pod a --grace-period -2",
			result{Err: "error: delete pod a: --grace-period -2 is negative\nnext: give seconds, or -1 for " +
				"the pod's own\n",
				Status: 1}},
	} {
		if diff := cmp.Diff(tt.want,
			berth(a, "", append([]string{"delete"}, strings.Fields(tt.args)...)...)); diff != "" {
			t.Errorf("delete %s (-want +got):\n%s", tt.args, diff)
		}
	}
	if d := a.Deleted(); len(d) != 4 || d[0].Grace == nil || *d[0].Grace != 5*time.Second || d[1].Grace != nil {
		t.Errorf("deletions: %v", d)
	}
}

func TestDeleteWaits(t *testing.T) {
	a := servertest.Start(t)
	p := running(a, "web", "app")
	a.OnDelete(func(*corev1.Pod) {})
	got := berth(a, "", "delete", "pod", "web", "--timeout", "100ms")
	if !strings.HasPrefix(got.Err, "error: delete pod web: not gone after 100ms: pod default/web\nnext: ") ||
		got.Status != 1 {
		t.Errorf("a pod that stays: %+v", got)
	}
	a.OnDelete(func(p *corev1.Pod) { go a.Remove(podKey(p)) })
	if got := berth(a, "", "delete", "pod", "web"); got.Status != 0 {
		t.Errorf("a pod that goes: %+v", got)
	}
	if _, there := a.Pods.Get(podKey(p)); there {
		t.Error("the command returned before the pod was gone")
	}
}

func TestRun(t *testing.T) {
	a := servertest.Start(t)
	a.OnApply(func(p *corev1.Pod) {
		a.WriteLog(t, p, "app", 0, "hello from "+p.Name)
		a.Change(podKey(p), servertest.Run)
		a.Finish(podKey(p), 3)
	})
	manifest := file(t, "web.yaml", "metadata: {name: web}\nspec: {containers: [{name: app}]}")
	got := berth(a, "", "run", "--image-archive", file(t, "app.tar", "a tar"), manifest)
	if got.Status != 3 || got.Out != "app | hello from web\n" ||
		!strings.Contains(got.Err, "web: container app ended with exit code 3\n") {
		t.Errorf("run: %+v", got)
	}
	if diff := cmp.Diff([]server.ApplyOptions{{Origin: manifest, CreateOnly: true}}, a.Applied()); diff != "" {
		t.Errorf("options (-want +got):\n%s", diff)
	}
	if string(a.Loaded()) != "a tar" {
		t.Errorf("loaded %q", a.Loaded())
	}
	if got := berth(a, "metadata: {name: quiet}\nspec: {containers: [{name: app}]}", "run", "--no-logs",
		"-"); got.Out != "" || got.Status != 3 {
		t.Errorf("run --no-logs: %+v", got)
	}
}

func TestRunDetached(t *testing.T) {
	a := servertest.Start(t)
	got := berth(a, "metadata: {name: web}", "run", "-d", "-")
	if diff := cmp.Diff(result{Out: "pod/web created\n"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if opts := a.Applied(); len(opts) != 1 || !opts[0].Keep {
		t.Errorf("applied with %+v", opts)
	}
}

func TestRunNeedsAnAgentThatFits(t *testing.T) {
	a := servertest.Start(t)
	got := berth(a, "metadata: {name: web}", "run", "--config", "x.yaml", "-")
	if want := "error: run -: --config configures a new agent, but one already runs at " + a.Socket +
		"\nnext: leave it out, or choose another --root-dir\n"; got.Err != want {
		t.Errorf("a configuration for a running agent: %+v", got)
	}
	if err := a.Stop(); err != nil {
		t.Fatal(err)
	}
	got = berth(a, "metadata: {name: web}", "run", "--detach", "-")
	want := result{Status: 1,
		Err: "error: run -: --detach needs a running agent: connect to the agent at " + a.Socket +
			": no agent runs on this root\nnext: start one with \"berth agent\", or leave out --detach\n"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("no agent (-want +got):\n%s", diff)
	}
}

func TestSocket(t *testing.T) {
	for _, tt := range []struct{ root, socket, want string }{
		{"", "", "/run/berth/berth.sock"},
		{"/var/lib/berth", "", "/run/berth/berth.sock"},
		{"/var/lib/kubelet", "", "/run/berth/berth.sock"},
		{"/srv/berth", "", "/srv/berth/berth.sock"},
		{"/srv/berth", "/tmp/s", "/tmp/s"},
	} {
		if got := (&command.App{Root: tt.root, Socket: tt.socket}).SocketPath(); got != tt.want {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}

// A shell waits for completions. Without an agent, and with one that does not answer, it gets none soon.
func TestCompletionGivesUpSoon(t *testing.T) {
	hanging := filepath.Join(t.TempDir(), "hangs.sock")
	listener, err := net.Listen("unix", hanging) // connections wait for an Accept that never comes
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	for _, socket := range []string{filepath.Join(t.TempDir(), "none.sock"), hanging} {
		for _, args := range [][]string{{"logs", ""}, {"exec", "web", "-c", ""}, {"image", "rm", ""}} {
			var out bytes.Buffer
			began := time.Now()
			status := Main(slices.Concat([]string{"__complete", "--socket", socket}, args), nil, &out, io.Discard)
			if took := time.Since(began); status != 0 || out.String() != ":4\n" || took > 10*time.Second {
				t.Errorf("%s, %q: status %d after %v: %q", socket, args, status, took, out.String())
			}
		}
	}
}

func TestCompletion(t *testing.T) {
	a := servertest.Start(t)
	running(a, "web", "app", "side")
	running(a, "api", "app")
	a.SetImages(api.Image{ID: "sha256:1", Tags: []string{"app:v1"}},
		api.Image{ID: "sha256:2", Tags: []string{"tools:1"}})
	for args, want := range map[string]string{
		"logs ":               "api\nweb",
		"logs web -c ":        "app\nside",
		"describe ":           "pod\nnode",
		"delete pod ":         "api\nweb",
		"delete pod web ":     "api",
		"describe pod web ":   ":4\n",
		"events --for ":       "pod/api\npod/web",
		"cp w":                "web:",
		"cp ./w":              ":0\n", // files of this machine
		"cp web:/etc . -c ":   "app\nside",
		"image rm ":           "app:v1\ntools:1",
		"image rm app:v1 ":    "tools:1",
		"image save ":         "app:v1\ntools:1",
		"debug web --image ":  "app:v1\ntools:1",
		"debug web --target ": "app\nside",
		"top --sort ":         "cpu\nmemory\nstall\nname",
		"get pods -o ":        "json\nyaml\nwide\nname",
	} {
		got := berth(a, "", append([]string{"__complete"}, strings.Split(args, " ")...)...)
		if names, _, _ := strings.Cut(got.Out, "\n:"); names != want {
			t.Errorf("%s: %q, want %q", args, names, want)
		}
	}
	first := berth(a, "", "__complete", "delete", "").Out
	for _, word := range []string{"pod", "configmap", "secret", "persistentvolumeclaim"} {
		if !slices.Contains(strings.Split(first, "\n"), word) {
			t.Errorf("delete does not offer %s:\n%s", word, first)
		}
	}
	if got := berth(a, "", "completion", "bash"); got.Status != 0 || got.Out == "" {
		t.Errorf("completion script: %+v", got)
	}
}

func TestVersion(t *testing.T) {
	var out bytes.Buffer
	if status := Main([]string{"version", "-o", "json"}, nil, &out, &out); status != 0 {
		t.Fatal(out.String())
	}
	var v api.Version
	if err := json.Unmarshal(out.Bytes(), &v); err != nil || v.Kubernetes != api.Kubernetes || v.Runc == "" ||
		v.Go == "" {
		t.Errorf("%v %+v", err, v)
	}
	tools, err := os.ReadFile("../../tools/go.mod")
	if err != nil || !bytes.Contains(tools, []byte("github.com/opencontainers/runc v"+v.Runc)) {
		t.Errorf("the runc that is built is not %s (%v)", v.Runc, err)
	}
	if info, ok := debug.ReadBuildInfo(); ok && v.Go != info.GoVersion {
		t.Errorf("go %s", v.Go)
	}
}

func TestConditionProblems(t *testing.T) {
	since := metav1.NewTime(time.Unix(1, 0))
	got := conditionProblems([]corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Message: "runtime is down", LastTransitionTime: since},
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse},
	})
	want := []api.Problem{{Origin: "condition Ready", Message: "runtime is down", Since: since}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPrintError(t *testing.T) {
	var out bytes.Buffer
	err := answer.Next(errors.New("no"), "do this")
	command.PrintError(&out, &cobra.Command{Use: "berth"}, fmt.Errorf("apply: %w", err))
	if got := out.String(); got != "error: apply: no\nnext: do this\n" {
		t.Errorf("%q", got)
	}
}

// docs/commands.md is generated from the help of the commands.
func TestCommandsAreDocumented(t *testing.T) {
	const path = "../../docs/commands.md"
	var page strings.Builder
	page.WriteString("# Commands\n\n[中文](zh/commands.md)\n\n" +
		"Every command has the flags `--root-dir` and `--socket`, which choose the agent, and `--request-timeout`,\n" +
		"after which it gives up if the agent answers nothing (default 30s; 0: no limit).\n")
	document(&page, newRoot(&app{}))
	golden.File(t, path, page.String())
}

func document(page *strings.Builder, cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		if sub.Name() == "help" || sub.Name() == "completion" {
			continue
		}
		fmt.Fprintf(page, "\n## %s\n\n%s.\n", sub.CommandPath(), sub.Short)
		if sub.Long != "" {
			fmt.Fprintf(page, "\n%s\n", sub.Long)
		}
		fmt.Fprintf(page, "\n```\n%s\n\nExample:\n%s\n", sub.UseLine(), sub.Example)
		if flags := sub.LocalNonPersistentFlags().FlagUsages(); flags != "" {
			fmt.Fprintf(page, "\nFlags:\n%s", flags)
		}
		page.WriteString("```\n")
		document(page, sub)
	}
}

func TestCopy(t *testing.T) {
	a := servertest.Start(t)
	running(a, "web", "app")
	here := t.TempDir()
	for name, content := range map[string]string{filepath.Join(a.Files, "etc/app/conf"): "theirs",
		filepath.Join(here, "mine/one"): "ours"} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct{ from, to, file, content string }{
		{"web:/etc/app/conf", here, filepath.Join(here, "conf"), "theirs"},
		{"default/web:etc/app/conf", here + "/renamed", filepath.Join(here, "renamed"), "theirs"},
		{"web:/etc/app", here + "/tree", filepath.Join(here, "tree/conf"), "theirs"},
		{here + "/mine", "web:/etc", filepath.Join(a.Files, "etc/mine/one"), "ours"},
		{here + "/mine/one", "web:/etc/app/conf", filepath.Join(a.Files, "etc/app/conf"), "ours"},
	} {
		if got := berth(a, "", "cp", step.from, step.to); got != (result{}) {
			t.Errorf("cp %s %s: %+v", step.from, step.to, got)
		}
		if content, err := os.ReadFile(step.file); string(content) != step.content || err != nil {
			t.Errorf("cp %s %s: %q, %v", step.from, step.to, content, err)
		}
	}
	got := berth(a, "", "cp", "web:/none", here)
	if got.Status != 1 || !strings.Contains(got.Err, "read /none in container") ||
		!strings.Contains(got.Err, "no such file") {
		t.Errorf("nothing there: %+v", got)
	}
}
