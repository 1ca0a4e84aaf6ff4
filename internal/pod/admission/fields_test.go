package admission

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// TestEveryFieldIsClassified walks the API's types: a field that a new version
// of it brings fails here until the table classifies it.
func TestEveryFieldIsClassified(t *testing.T) {
	table := map[string]Field{}
	for _, f := range Fields() {
		if _, twice := table[f.Path]; twice {
			t.Errorf("%s is there twice", f.Path)
		}
		if f.Status >= Joined && f.Why == "" {
			t.Errorf("%s is refused and does not say why", f.Path)
		}
		table[f.Path] = f
	}
	seen := map[string]bool{}
	var look func(typ reflect.Type, name string)
	look = func(typ reflect.Type, name string) {
		for i := range typ.NumField() {
			field := typ.Field(i)
			json := jsonName(field)
			if json == "" {
				look(field.Type, embeddedName(name, field.Name))
				continue
			}
			path := name + "." + json
			f, ok := table[path]
			if !ok {
				t.Errorf("%s (%s) is not classified", path, field.Type)
				continue
			}
			if seen[path] {
				continue
			}
			seen[path] = true
			below := field.Type
			for below.Kind() == reflect.Slice || below.Kind() == reflect.Pointer {
				below = below.Elem()
			}
			if f.Status == Works && below.Kind() == reflect.Struct && isAPI(below) {
				look(below, below.Name())
			}
			if f.when != nil && below.Kind() == reflect.Struct && isAPI(below) {
				t.Errorf("%s is refused for some values only, but what is below it is never looked at", path)
			}
		}
	}
	look(reflect.TypeFor[corev1.PodSpec](), "PodSpec")
	for path := range table {
		if !seen[path] {
			t.Errorf("%s is classified, but the API has no such field in a pod", path)
		}
	}
}

// spec reads a pod's spec in YAML.
func spec(t testing.TB, text string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{}
	p.Namespace, p.Name, p.UID = "default", "app", "app"
	if err := yaml.UnmarshalStrict([]byte(text), &p.Spec); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return p
}

func TestFields(t *testing.T) {
	tests := map[string]struct {
		spec string
		want []string // paths that are refused
	}{
		"a usual pod": {`
containers:
- name: app
  image: app:1
  env: [{name: A, value: b}, {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]
  ports: [{containerPort: 80, hostPort: 8080}]
  resources: {requests: {cpu: 1}, limits: {memory: 1Gi}}
  volumeMounts: [{name: data, mountPath: /data, subPath: x}]
  livenessProbe: {httpGet: {port: 80, protocol: HTTP1}, periodSeconds: 3}
  readinessProbe: {grpc: {port: 81, mode: Plaintext}}
  lifecycle: {preStop: {sleep: {seconds: 1}}, stopSignal: SIGUSR1}
  securityContext: {runAsUser: 1, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}
volumes: [{name: data, emptyDir: {medium: Memory, sizeLimit: 1Mi}}, {name: host, hostPath: {path: /etc, type: ` +
			`Directory}}, {name: plain, emptyDir: {sizeLimit: 1Gi}}]
automountServiceAccountToken: false
serviceAccountName: default
serviceAccount: default
runtimeClassName: vm
hostUsers: true
enableServiceLinks: true
affinity: {podAffinity: {}, nodeAffinity: {}}
topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]
securityContext: {fsGroup: 1, sysctls: [{name: net.ipv4.tcp_syncookies, value: "1"}]}
`, nil},
		"objects": {`
containers:
- name: app
  envFrom: [{configMapRef: {name: c}}]
  env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}, {name: B, valueFrom: {configMapKeyRef: {name: c, ` +
			`key: k}}}, {name: C, valueFrom: {fileKeyRef: {volumeName: v, path: p, key: k}}}]
initContainers: [{name: first, envFrom: [{secretRef: {name: s}}]}]
ephemeralContainers: [{name: debug, targetContainerName: app, envFrom: [{secretRef: {name: s}}]}]
imagePullSecrets: [{name: registry}]
volumes: [{name: c, configMap: {name: c}}, {name: s, secret: {}}, {name: p, projected: {sources: [{configMap: ` +
			`{name: c}}, {serviceAccountToken: {path: t}}, {clusterTrustBundle: {path: b}}, {podCertificate: ` +
			`{keyType: ED25519}}]}}, {name: d, downwardAPI: {defaultUser: 7, items: [{path: l, fieldRef: ` +
			`{fieldPath: metadata.labels}}]}}, {name: v, persistentVolumeClaim: {claimName: v}}, {name: g, ` +
			`glusterfs: {endpoints: e, path: p}}]
`, []string{
			"spec.volumes[2].projected.sources[1].serviceAccountToken",
			"spec.volumes[2].projected.sources[2].clusterTrustBundle",
			"spec.volumes[2].projected.sources[3].podCertificate",
			"spec.volumes[3].downwardAPI.defaultUser", "spec.volumes[5].glusterfs",
		}},
		"the rest": {`
containers:
- name: app
  volumeDevices: [{name: d, devicePath: /dev/x}]
  volumeMounts: [{name: data, mountPath: /data, bindMountOptions: [noexec]}]
  resources: {claims: [{name: gpu}]}
  livenessProbe: {httpGet: {port: 80, protocol: HTTP2}}
  readinessProbe: {grpc: {port: 81, mode: TLS}}
  lifecycle: {postStart: {httpGet: {port: 80, protocol: HTTP2}}}
  securityContext: {windowsOptions: {hostProcess: true}}
securityContext: {windowsOptions: {runAsUserName: me}}
initContainers: [{name: first, securityContext: {windowsOptions: {runAsUserName: me}}}]
volumes: [{name: data, emptyDir: {}}]
serviceAccountName: robot
automountServiceAccountToken: true
readinessGates: [{conditionType: lb}]
schedulingGates: [{name: wait}]
resourceClaims: [{name: gpu}]
`, []string{
			"spec.containers[0].resources.claims", "spec.containers[0].volumeMounts[0].bindMountOptions",
			"spec.containers[0].livenessProbe.httpGet.protocol", "spec.containers[0].readinessProbe.grpc.mode",
			"spec.containers[0].lifecycle.postStart.httpGet.protocol",
			"spec.serviceAccountName", "spec.automountServiceAccountToken",
			"spec.schedulingGates", "spec.resourceClaims",
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := checkFields(In{Pod: spec(t, test.spec), Config: Config{Standalone: true}})
			var refused []string
			for part := range strings.SplitSeq(got.Message, "; spec.") {
				if path, _, ok := strings.Cut(part, ": "); ok {
					refused = append(refused, "spec."+strings.TrimPrefix(path, "spec."))
				}
			}
			if d := cmp.Diff(test.want, refused); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if rejected := got.Verdict == Rejected && got.Reason == UnsupportedField; rejected != (len(test.want) > 0) {
				t.Errorf("answer %+v", got)
			}
		})
	}
}

// A node of a cluster ignores fields of API server pods that are newer than the kubelet version that Berth follows. It
// rejects the pod if it would do more than it wants without such a field.
func TestNewerFieldsOfAJoinedNode(t *testing.T) {
	p := spec(t, `
containers:
- name: app
  livenessProbe: {httpGet: {port: 80, protocol: HTTP2}}
  readinessProbe: {grpc: {port: 81, mode: TLS}}
volumes: [{name: s, secret: {secretName: s, defaultUser: 7}}]
evictionResponders: [{name: example.com/first}]
`)
	if got := checkFields(In{Pod: p}); got.Verdict != Admitted {
		t.Errorf("got %+v", got)
	}
	p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "s", MountPath: "/s",
		BindMountOptions: []string{"noexec"}}}
	if got := checkFields(In{Pod: p}); got.Verdict != Rejected {
		t.Errorf("got %+v", got)
	}
}

func TestFieldsOfAJoinedNode(t *testing.T) {
	p := spec(t, "serviceAccountName: robot\nautomountServiceAccountToken: true")
	if got := checkFields(In{Pod: p}); got.Verdict != Admitted {
		t.Errorf("got %+v", got)
	}
	want := Answer{Verdict: Rejected, Reason: UnsupportedField,
		Message: "spec.serviceAccountName: service accounts belong to a control plane; \"default\", which every pod " +
			"of a cluster has, is accepted and has no token; " +
			"spec.automountServiceAccountToken: service accounts belong to a control plane, and a pod that asks for " +
			"a token could not work without; false is accepted"}
	if d := cmp.Diff(want, checkFields(In{Pod: p, Config: Config{Standalone: true}})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// BenchmarkFields measures the walk over a pod's fields, which each admission pays for.
func BenchmarkFields(b *testing.B) {
	p := spec(b,
		"containers: [{name: app, env: [{name: A, value: b}], ports: [{containerPort: 80}]}, {name: b}]\nvolumes: "+
			"[{name: data, emptyDir: {}}]")
	for b.Loop() {
		if a := checkFields(In{Pod: p}); a.Verdict != Admitted {
			b.Fatal(a)
		}
	}
}
