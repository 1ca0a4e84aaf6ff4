package render

import (
	"encoding/base64"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"sigs.k8s.io/yaml"

	"github.com/berth-run/berth/internal/base/golden"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/steps/poddir"
	"github.com/berth-run/berth/internal/pod/steps/sandbox"
)

// TestPods renders the sandbox and every container of each pod in testdata/pods, all on the same node. go test -update
// writes the golden files. Every field that has an effect occurs in one of these pods: see TestPodsHaveEveryField in
// package admission.
func TestPods(t *testing.T) {
	// Properties of the node that only one pod uses.
	nodes := map[string]func(*Node){
		"seccomp-default": func(n *Node) { n.SeccompDefault = true },
		"selinux":         func(n *Node) { n.SELinux = true },
		"mounts":          func(n *Node) { n.RecursiveReadOnly = true },
		"burstable":       func(n *Node) { n.HugePages = []string{"2MB", "1GB"} },
		"guaranteed":      func(n *Node) { n.CgroupV2, n.GroupOOMKill, n.SwapController = true, true, true },
	}
	files, err := filepath.Glob("testdata/pods/*.yaml")
	if err != nil || len(files) < 25 {
		t.Fatalf("%d pods, %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".yaml")
		t.Run(name, func(t *testing.T) {
			node := input(t, "minimal").Node
			node.CFSQuota = true
			if edit := nodes[name]; edit != nil {
				edit(&node)
			}
			p := readPod(t, file)
			box := sandboxOf(t, p, node)
			configs := map[string]any{"sandbox": inClear(t, box)}
			for _, c := range pod.Containers(p) {
				config, err := Config(inputOf(t, p, c, box, node))
				if err != nil {
					t.Fatalf("%s: %v", c.Name, err)
				}
				configs[c.Kind.String()+" "+c.Name] = inClear(t, config)
			}
			compare(t, strings.TrimSuffix(file, ".yaml")+".golden", configs)
		})
	}
}

func readPod(t *testing.T, file string) *corev1.Pod {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	p := &corev1.Pod{}
	if err := yaml.UnmarshalStrict(raw, p); err != nil {
		t.Fatal(err)
	}
	return p
}

// sandboxOf returns the pod's sandbox on a node of a cluster.
func sandboxOf(t *testing.T, p *corev1.Pod, node Node) *runtimeapi.PodSandboxConfig {
	t.Helper()
	resolver := poddir.Resolver{ClusterDNS: []netip.Addr{netip.MustParseAddr("10.96.0.10")},
		ClusterDomain: "cluster.local"}
	dns, warnings := poddir.PodDNS(p, resolver,
		&runtimeapi.DNSConfig{Servers: []string{"192.0.2.53"}, Searches: []string{"example.com"},
			Options: []string{"timeout:1"}})
	hostname, err := poddir.New(poddir.Config{Resolver: resolver}).Hostname(p)
	if err != nil || len(warnings) > 0 {
		t.Fatal(err, warnings)
	}
	given := sandbox.Given{Hostname: hostname, LogDir: "/var/log/pods/shop_web_6b1e", CgroupParent: "/kubepods/pod6b1e",
		DNS: dns}
	given.Resources, given.Overhead = node.PodResources(p)
	if p.Spec.HostUsers != nil && !*p.Spec.HostUsers {
		ids := []*runtimeapi.IDMapping{{HostId: 65536, Length: 65536}}
		given.Userns = &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: ids, Gids: ids}
	}
	box, err := sandbox.Render(p, given)
	if err != nil {
		t.Fatal(err)
	}
	return box
}

// inputOf returns the input that a container start passes to Config.
func inputOf(t *testing.T, p *corev1.Pod, c pod.Container, box *runtimeapi.PodSandboxConfig, node Node) Input {
	t.Helper()
	const dir = "/var/lib/berth/pods/6b1e/"
	in := Input{
		Pod: p, QOS: pod.QOS(p), Container: c, PodIPs: []string{"10.88.0.5", "fd00::5"}, Node: node,
		Image:  &runtimeapi.Image{Id: "sha256:8b1e", Uid: &runtimeapi.Int64Value{Value: 65534}},
		Userns: box.GetLinux().GetSecurityContext().GetNamespaceOptions().GetUsernsOptions(),
	}
	if len(c.EnvFrom) > 0 {
		in.Sources = sources()
	}
	if c.Target != "" {
		in.TargetID = "id-of-" + c.Target
	}
	in.Mounted = map[string]pod.Volume{}
	for _, v := range p.Spec.Volumes {
		in.Mounted[v.Name] = pod.Volume{HostLabels: v.HostPath != nil}
	}
	parts, err := SubPaths(in)
	if err != nil {
		t.Fatal(err)
	}
	in.Mounted = map[string]pod.Volume{}
	for _, v := range p.Spec.Volumes {
		in.Mounted[v.Name] = pod.Volume{HostLabels: v.HostPath != nil}
	}
	for _, v := range p.Spec.Volumes {
		if v.Image != nil {
			in.Mounted[v.Name] = pod.Volume{Image: "sha256:da7a", ReadOnly: true}
		}
	}
	for _, d := range c.VolumeDevices {
		in.Mounted[d.Name] = pod.Volume{Path: "/dev/vdb", Block: true}
	}
	for i, m := range c.VolumeMounts {
		path := filepath.Join(dir, "volumes", m.Name, parts[i])
		if in.Mounted[m.Name].Image != "" {
			path = parts[i]
		}
		in.Volumes = append(in.Volumes, path)
	}
	if WantsHosts(p, c, in.PodIPs) {
		in.HostsFile = dir + "etc-hosts"
	}
	if c.TerminationMessagePath != "" {
		in.TerminationLog = dir + "containers/" + c.Name + "/00000000"
	}
	return in
}

// inClear returns a message as a tree, with the environment as text.
func inClear(t *testing.T, m proto.Message) map[string]any {
	t.Helper()
	raw, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	tree := map[string]any{}
	if err := json.Unmarshal(raw, &tree); err != nil {
		t.Fatal(err)
	}
	envs, _ := tree["envs"].([]any)
	for i, e := range envs {
		kv := e.(map[string]any)
		value, _ := kv["value"].(string)
		text, err := base64.StdEncoding.DecodeString(value)
		if err != nil {
			t.Fatal(err)
		}
		envs[i] = kv["key"].(string) + "=" + string(text)
	}
	return tree
}

// compare compares a tree with a golden file.
func compare(t *testing.T, file string, tree any) {
	t.Helper()
	got, err := yaml.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	golden.File(t, file, string(got))
}
