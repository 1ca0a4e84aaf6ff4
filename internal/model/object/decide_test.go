package object

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// parse reads an object and sets its defaults. It has a name and a namespace unless the text says otherwise.
func parse(t *testing.T, kindName, text string) Value {
	t.Helper()
	kind, ok := KindNamed(kindName)
	if !ok {
		t.Fatalf("no kind %s", kindName)
	}
	v := kind.New()
	v.SetName("o")
	if kind.Namespaced {
		v.SetNamespace("default")
	}
	if err := yaml.UnmarshalStrict([]byte(text), v); err != nil {
		t.Fatal(err)
	}
	Default(v)
	return v
}

func lines(errs field.ErrorList) []string {
	var all []string
	for _, err := range errs {
		all = append(all, err.Error())
	}
	return all
}

const (
	goodClaim  = "spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}"
	goodVolume = "spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /srv}}"
)

func TestValidate(t *testing.T) {
	tests := []struct {
		name, kind, text string
		want             []string
	}{
		{"nothing in it", ConfigMap, "data: {}", nil},
		{"text and bytes", ConfigMap, "data: {a.conf: x, B_c-1: y}\nbinaryData: {d: AAE=}", nil},
		{"no name", ConfigMap, "metadata: {name: ''}", []string{`metadata.name: Required value`}},
		{"a name to be made", ConfigMap, "metadata: {name: '', generateName: app-}",
			[]string{`metadata.name: Required value: generateName is not supported, give the object a name`}},
		{"a wrong name", ConfigMap, "metadata: {name: App}",
			[]string{`metadata.name: Invalid value: "App": a lowercase RFC 1123 subdomain`}},
		{"a wrong namespace", ConfigMap, "metadata: {namespace: a.b}",
			[]string{`metadata.namespace: Invalid value: "a.b": must not contain dots`}},
		{"a wrong label", ConfigMap, "metadata: {labels: {'a b': c}}",
			[]string{`metadata.labels: Invalid value: "a b"`}},
		{"a wrong annotation", ConfigMap, "metadata: {annotations: {'a b': c}}",
			[]string{`metadata.annotations: Invalid value: "a b"`}},
		{"a key that is a path", ConfigMap, "data: {a/b: x, ..: y}",
			[]string{`data[..]: Invalid value: "..": must not be '..'`,
				`data[a/b]: Invalid value: "a/b": a valid config key`}},
		{"a key twice", ConfigMap, "data: {a: x}\nbinaryData: {a: AAE=}",
			[]string{`data[a]: Invalid value: "a": duplicate of key present in binaryData`}},
		{"a MiB", ConfigMap, "data: {a: '" + strings.Repeat("x", 1<<20) + "'}", nil},
		{"more than a MiB", ConfigMap, "data: {a: x, b: '" + strings.Repeat("x", 1<<20) + "'}",
			[]string{`data: Invalid value: "1048577 bytes": must have at most 1048576 bytes together`}},

		{"a Secret of text", Secret, "stringData: {a: x}", nil},
		{"a Secret's wrong key", Secret, "stringData: {'a b': x}",
			[]string{`data[a b]: Invalid value: "a b": a valid config key`}},
		{"of a type of one's own", Secret, "type: example.com/mine\ndata: {}", nil},
		{"registry credentials", Secret, "type: kubernetes.io/dockerconfigjson\nstringData: {.dockerconfigjson: '{}'}",
			nil},
		{"registry credentials that are none", Secret,
			"type: kubernetes.io/dockerconfigjson\nstringData: {.dockerconfigjson: 'hunter2'}",
			[]string{`data[.dockerconfigjson]: Invalid value: "<not shown>": must be a JSON object`}},
		{"registry credentials elsewhere", Secret, "type: kubernetes.io/dockercfg\nstringData: {config: '{}'}",
			[]string{`data[.dockercfg]: Required value: a Secret of type kubernetes.io/dockercfg has it`}},
		{"a user without a password", Secret, "type: kubernetes.io/basic-auth\nstringData: {username: me}", nil},
		{"neither", Secret, "type: kubernetes.io/basic-auth",
			[]string{`data[username]: Required value: a Secret`, `data[password]: Required value: a Secret`}},
		{"no key", Secret, "type: kubernetes.io/ssh-auth", []string{`data[ssh-privatekey]: Required value`}},
		{"half of a certificate", Secret, "type: kubernetes.io/tls\nstringData: {tls.crt: x}",
			[]string{`data[tls.key]: Required value`}},
		{"nobody's token", Secret, "type: kubernetes.io/service-account-token",
			[]string{`metadata.annotations[kubernetes.io/service-account.name]: Required value`}},

		{"a claim", PersistentVolumeClaim, goodClaim, nil},
		{"an empty claim", PersistentVolumeClaim, "spec: {}",
			[]string{`spec.accessModes: Required value: at least 1 access mode is required`,
				`spec.resources.requests[storage]: Required value`}},
		{"of nothing", PersistentVolumeClaim,
			"spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 0}}}",
			[]string{`spec.resources.requests[storage]: Invalid value: "0": must be greater than zero`}},
		{"modes that exclude each other", PersistentVolumeClaim,
			"spec: {accessModes: [ReadWriteOncePod, ReadOnlyMany], resources: {requests: {storage: 1}}}",
			[]string{`spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes`}},
		{"words that are none", PersistentVolumeClaim,
			"spec: {accessModes: [RWO], volumeMode: Disk, storageClassName: A, volumeName: B, selector: " +
				"{matchExpressions: [{key: a, operator: Like}]}, resources: {requests: {storage: 1}}}",
			[]string{`spec.accessModes: Unsupported value: "RWO"`, `spec.volumeMode: Unsupported value: "Disk"`,
				`spec.storageClassName: Invalid value: "A"`,
				`spec.selector.matchExpressions[0].operator: Invalid value: "Like"`,
				`spec.volumeName: Invalid value: "B"`}},

		{"a volume", PersistentVolume, goodVolume, nil},
		{"in a namespace", PersistentVolume, "metadata: {namespace: default}\n" + goodVolume,
			[]string{`metadata.namespace: Forbidden: a PersistentVolume belongs to no namespace`}},
		{"of no kind", PersistentVolume, "spec: {capacity: {storage: 1}, accessModes: [ReadWriteOnce]}",
			[]string{`spec: Required value: exactly one volume type, there are 0`}},
		{"of two kinds", PersistentVolume,
			"spec: {capacity: {storage: 1}, accessModes: [ReadWriteOnce], hostPath: {path: /a}, local: {path: /b}}",
			[]string{`spec: Required value: exactly one volume type, there are 2`}},
		{"paths that climb", PersistentVolume,
			"spec: {capacity: {storage: 1}, accessModes: [ReadWriteOnce], local: {path: /a/../b}}",
			[]string{`spec.local.path: Invalid value: "/a/../b": must not contain '..'`}},
		{"an incomplete nfs", PersistentVolume,
			"spec: {capacity: {storage: 1}, accessModes: [ReadWriteOnce], nfs: {server: '', path: srv}}",
			[]string{`spec.nfs.server: Required value`,
				`spec.nfs.path: Invalid value: "srv": must be an absolute path`}},
		{"a capacity that is none", PersistentVolume,
			"spec: {capacity: {cpu: 1}, accessModes: [ReadWriteOnce], persistentVolumeReclaimPolicy: Keep, hostPath: " +
				"{path: /a}}",
			[]string{`spec.capacity[storage]: Required value: storage, and nothing else`,
				`spec.persistentVolumeReclaimPolicy: Unsupported value: "Keep"`}},

		{"a runtime", RuntimeClass,
			"handler: runc\noverhead: {podFixed: {cpu: 100m}}\nscheduling: {nodeSelector: {a: b}}", nil},
		{"no runtime", RuntimeClass, "overhead: {podFixed: {memory: -1}}\nscheduling: {nodeSelector: {'a b': c}}",
			[]string{`handler: Required value`, `overhead.podFixed[memory]: Invalid value: "-1": must not be negative`,
				`scheduling.nodeSelector: Invalid value: "a b"`}},
		{"a runtime that is a path", RuntimeClass, "handler: ../runc", []string{`handler: Invalid value: "../runc"`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := lines(Validate(parse(t, test.kind, test.text)))
			same := len(got) == len(test.want)
			for i := range min(len(got), len(test.want)) {
				same = same && strings.HasPrefix(got[i], test.want[i])
			}
			if !same {
				t.Errorf("errors (-begin wanted +got):\n%s", cmp.Diff(test.want, got))
			}
		})
	}
}

func TestValidateUpdate(t *testing.T) {
	const marked = "field is immutable when `immutable` is set"
	tests := []struct {
		name, kind, was, now string
		want                 []string
	}{
		{"data", ConfigMap, "data: {a: x}", "data: {a: y}", nil},
		{"it becomes immutable", ConfigMap, "data: {a: x}", "data: {a: y}\nimmutable: true", nil},
		{"immutable data", ConfigMap, "data: {a: x}\nimmutable: true", "data: {a: y}\nimmutable: true",
			[]string{"data: Forbidden: " + marked}},
		{"no more immutable", ConfigMap, "binaryData: {a: AAE=}\nimmutable: true", "binaryData: {}",
			[]string{"immutable: Forbidden: " + marked, "binaryData: Forbidden: " + marked}},
		{"labels of what is immutable", ConfigMap, "data: {a: x}\nimmutable: true",
			"metadata: {labels: {a: b}}\ndata: {a: x}\nimmutable: true", nil},
		{"a Secret's type", Secret, "type: Opaque", "type: example.com/mine",
			[]string{"type: Forbidden: field is immutable"}},
		{"an immutable Secret", Secret, "stringData: {a: x}\nimmutable: true", "stringData: {a: y}\nimmutable: true",
			[]string{"data: Forbidden: " + marked}},
		{"a volume's size", PersistentVolume, goodVolume, strings.Replace(goodVolume, "1Gi", "2Gi", 1), nil},
		{"a volume's source and mode", PersistentVolume, goodVolume,
			strings.Replace(goodVolume, "hostPath", "volumeMode: Block, local", 1),
			[]string{"spec: Forbidden: the volume's source is immutable after creation",
				"spec.volumeMode: Forbidden: field is immutable"}},
		{"a claim that grows", PersistentVolumeClaim, goodClaim, strings.Replace(goodClaim, "1Gi", "2Gi", 1), nil},
		{"a claim that gets its volume", PersistentVolumeClaim, goodClaim,
			strings.Replace(goodClaim, "{access", "{volumeName: v, access", 1), nil},
		{"a claim that shrinks", PersistentVolumeClaim, goodClaim, strings.Replace(goodClaim, "1Gi", "1Mi", 1),
			[]string{"spec.resources.requests.storage: Forbidden: field can not be less than previous value"}},
		{"another claim", PersistentVolumeClaim, goodClaim, strings.Replace(goodClaim, "Once", "Many", 1),
			[]string{"spec: Forbidden: spec is immutable after creation except resources.requests"}},
		{"a runtime's overhead", RuntimeClass, "handler: runc", "handler: runc\noverhead: {podFixed: {cpu: 1}}", nil},
		{"another runtime", RuntimeClass, "handler: runc", "handler: runsc",
			[]string{"handler: Forbidden: field is immutable"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := lines(ValidateUpdate(parse(t, test.kind, test.was), parse(t, test.kind, test.now)))
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSame(t *testing.T) {
	a, b := parse(t, ConfigMap, "data: {a: x}"), parse(t, ConfigMap, "metadata: {uid: u}\ndata: {a: x}")
	if !Same(a, b) {
		t.Error("objects with different UIDs differ")
	}
	if Same(a, parse(t, ConfigMap, "data: {a: y}")) {
		t.Error("objects with different data are equal")
	}
}
