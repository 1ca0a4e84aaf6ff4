package kubeletfile

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/kubelet/config/v1beta1"
)

const header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

func TestParse(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"good", header + "maxPods: 3\n", ""},
		{
			"JSON",
			`{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration",` +
				`"logging":{"flushFrequency":5000000000}}`, ""},
		{"nothing", "# nothing\n", "f: wants one document of kind KubeletConfiguration, has 0"},
		{"two documents", header + "---\n" + header, "f: wants one document of kind KubeletConfiguration, has 2"},
		{"another kind", "apiVersion: v1\nkind: Pod\n",
			`f: wants apiVersion kubelet.config.k8s.io/v1beta1 and kind KubeletConfiguration, has "v1" and "Pod"`},
		{"no kind", "maxPods: 3\n",
			`f: wants apiVersion kubelet.config.k8s.io/v1beta1 and kind KubeletConfiguration, has "" and ""`},
		{"wrong types", header + "maxPods: many\nsyncFrequency: 10\nstaticPodURLHeader: {a: b}\n",
			`f: line 3: maxPods: wants a whole number (int32), got "many"; line 4: syncFrequency: 10: cannot ` +
				`unmarshal number into Go value of type string; line 5: staticPodURLHeader.a: wants a list, got "b"`},
		{"duration", header + "syncFrequency: 10x\n",
			`f: line 3: syncFrequency: "10x": time: unknown unit "x" in duration "10x"`},
		{"syntax", header + "maxPods: [\n", "f: line 3: did not find expected node content"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Parse("f", []byte(tt.text))
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// Unknown fields and keys given twice do not keep the agent from starting, as under the kubelet. Each is named.
func TestParseIgnoresUnknownFields(t *testing.T) {
	l, err := Parse("f", []byte(header+"maxPods: 1\nmaxPods: 2\nauthentication:\n  x509: {clientCaFile: /x}\n"+
		"PodsPerCore: 7\n"))
	if err != nil {
		t.Fatal(err)
	}
	const ignored = "ignored, as by a kubelet: "
	want := []Warning{
		{Origin: "f", Text: ignored + "line 4: maxPods: is given twice, first in line 3"},
		{Origin: "f", Text: ignored + `line 6: authentication.x509.clientCaFile: unknown field, did you mean ` +
			`"clientCAFile"?`},
		{Origin: "f", Text: ignored + `line 7: PodsPerCore: unknown field, did you mean "podsPerCore"?`},
	}
	if diff := cmp.Diff(want, l.Ignored); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	kc, origin, err := Merge([]Layer{l})
	if err != nil {
		t.Fatal(err)
	}
	if kc.MaxPods != 2 || kc.PodsPerCore != 0 || len(origin) != 1 {
		t.Errorf("maxPods %d, podsPerCore %d, set %v; want 2, 0 and maxPods", kc.MaxPods, kc.PodsPerCore, origin)
	}
}

// Every field of the API is listed exactly once, as supported or as without effect.
func TestEveryFieldIsClassified(t *testing.T) {
	var api []string
	eachField(reflect.ValueOf(v1beta1.KubeletConfiguration{}), "", func(path string, _ reflect.Value) {
		api = append(api, path)
	})
	slices.Sort(api)
	classified := supported()
	for _, paths := range withoutEffect() {
		classified = append(classified, paths...)
	}
	slices.Sort(classified)
	if diff := cmp.Diff(api, classified); diff != "" {
		t.Errorf("fields of the API against fields.go (-api +fields.go):\n%s", diff)
	}
	for path := range limited() {
		if !slices.Contains(supported(), path) {
			t.Errorf("%s is in limited and not in supported", path)
		}
	}
}

func TestWarnings(t *testing.T) {
	const noServer = "has no effect: there is no HTTPS server: it needs --kubeconfig, or port with " +
		"authentication.x509.clientCAFile; commands use the agent's socket"
	l, err := Parse("f.yaml", []byte(header+`
maxPods: 3
evictionHard: {memory.available: 5%}
reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}]
enableServer: false
rotateCertificates: true
cpuManagerReconcilePeriod: 0s
clusterDNS: []
logging: {format: json, flushFrequency: 0, verbosity: 0}
authentication: {anonymous: {enabled: false}}
featureGates: {B: true, A: false, EnvFiles: false, TopologyManagerPolicyAlphaOptions: true}
tracing: {endpoint: "c:1"}
tlsCipherSuites: [TLS_RSA_WITH_AES_128_CBC_SHA]
`))
	if err != nil {
		t.Fatal(err)
	}
	kc, origin, err := Merge([]Layer{l})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range Warnings(kc, origin, false, false) {
		got = append(got, w.String())
	}
	want := []string{
		"f.yaml: authentication.anonymous.enabled: " + noServer,
		"f.yaml: featureGates.A: has no effect: there is no such feature gate here",
		"f.yaml: featureGates.B: has no effect: there is no such feature gate here",
		"f.yaml: featureGates.TopologyManagerPolicyAlphaOptions: has no effect: it guards no option in " +
			"Kubernetes 1.36",
		"f.yaml: logging.format: has no effect: use --log-format and --log-level",
		"f.yaml: rotateCertificates: has no effect: there is no API server to talk to without --kubeconfig",
		"f.yaml: tlsCipherSuites: " + noServer,
		"f.yaml: reservedMemory: reserves nothing unless memoryManagerPolicy is Static",
		"f.yaml: tlsCipherSuites: TLS_RSA_WITH_AES_128_CBC_SHA is insecure",
		"f.yaml: tracing.samplingRatePerMillion: is 0: no trace is exported; 1000000 exports all",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// A node of a cluster has the same configuration as a kubelet 1.36.3 showed on /configz for the same file.
func TestDefaultsAreTheKubelets(t *testing.T) {
	text, err := os.ReadFile("testdata/kubelet.yaml")
	if err != nil {
		t.Fatal(err)
	}
	l, err := Parse("kubelet.yaml", text)
	if err != nil {
		t.Fatal(err)
	}
	golden, err := os.ReadFile("testdata/kubelet-configz.json")
	if err != nil {
		t.Fatal(err)
	}
	var want, got map[string]any
	if err := json.Unmarshal(golden, &want); err != nil {
		t.Fatal(err)
	}
	shown, err := json.Marshal(map[string]any{"kubeletconfig": Complete(l.config, "", true)})
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(shown, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-kubelet +ours):\n%s", diff)
	}

	// These were set by that file, or by the kubelet's command line according to its /flagz.
	kc := Complete(&v1beta1.KubeletConfiguration{}, "", true)
	if !*kc.FailCgroupV1 || !*kc.MakeIPTablesUtilChains ||
		kc.VolumePluginDir != "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/" {
		t.Errorf("failCgroupV1 %t, makeIPTablesUtilChains %t, volumePluginDir %s", *kc.FailCgroupV1,
			*kc.MakeIPTablesUtilChains, kc.VolumePluginDir)
	}
}
