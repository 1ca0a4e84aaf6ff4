package manifest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

// withContainer returns the spec of a pod with one container that has these additional fields.
func withContainer(fields string) string {
	return "containers: [{name: app, image: app, " + fields + "}]"
}

func TestValidateSpec(t *testing.T) {
	tests := []struct {
		name, spec string
		want       []string
	}{
		{"good", withContainer("ports: [{containerPort: 80, name: http}], env: [{name: 'A.b-c', value: x}]"), nil},
		{"no containers", "{}", []string{"spec.containers: Required value: a pod has at least one"}},
		{"nameless", "containers: [{}]",
			[]string{"spec.containers[0].name: Required value", "spec.containers[0].image: Required value"}},
		{"names across the lists",
			"containers: [{name: a, image: a}, {name: B, image: b}]\ninitContainers: [{name: a, image: a}]", []string{
				`spec.containers[0].name: Duplicate value: "a"`,
				`spec.containers[1].name: Invalid value: "B": a lowercase RFC 1123 label must consist of lower case ` +
					`alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. ` +
					`'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`,
			}},
		{"image", "containers: [{name: a, image: ' a'}]",
			[]string{`spec.containers[0].image: Invalid value: " a": must not have leading or trailing whitespace`}},
		{"policies",
			withContainer("imagePullPolicy: Sometimes, terminationMessagePolicy: X") +
				"\nrestartPolicy: Maybe\ndnsPolicy: X\nos: {name: plan9}", []string{
				`spec.restartPolicy: Unsupported value: "Maybe": supported values: "Always", "OnFailure", "Never"`,
				`spec.os.name: Unsupported value: "plan9": supported values: "linux", "windows"`,
				`spec.dnsPolicy: Unsupported value: "X": supported values: "ClusterFirst", ` +
					`"ClusterFirstWithHostNet", "Default", "None"`,
				`spec.containers[0].imagePullPolicy: Unsupported value: "Sometimes": supported values: "Always", ` +
					`"IfNotPresent", "Never"`,
				`spec.containers[0].terminationMessagePolicy: Unsupported value: "X": supported values: "File", ` +
					`"FallbackToLogsOnError"`,
			}},
		{"times", withContainer("") + "\nterminationGracePeriodSeconds: -1\nactiveDeadlineSeconds: 0", []string{
			"spec.terminationGracePeriodSeconds: Invalid value: -1: must be between 0 and 2147483647, inclusive",
			"spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
		}},
		{"namespaces", withContainer("") + "\nhostPID: true\nshareProcessNamespace: true\nhostUsers: false", []string{
			"spec.shareProcessNamespace: Invalid value: true: cannot be set together with hostPID",
			"spec.hostPID: Forbidden: cannot be set together with hostUsers: false",
		}},
		{"dns", withContainer("") +
			"\nhostname: a.b\ndnsPolicy: None\nhostAliases: [{ip: x, hostnames: ['']}]\nhostnameOverride: " +
			"h\nsetHostnameAsFQDN: true", []string{
			`spec.hostname: Invalid value: "a.b": must not contain dots`,
			"spec.hostnameOverride: Forbidden: cannot be set together with setHostnameAsFQDN",
			`spec.hostAliases[0].ip: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`,
			"spec.hostAliases[0].hostnames[0]: Required value",
			"spec.dnsConfig.nameservers: Required value: dnsPolicy None needs at least one",
		}},
		{"dns config",
			withContainer("") +
				"\ndnsConfig: {nameservers: [1.1.1.1, 1.1.1.2, 1.1.1.3, '::1'], searches: [., _tcp.example.com., " +
				"'A'], options: [{value: x}]}", []string{
				"spec.dnsConfig.nameservers: Too many: 4: must have at most 3 items",
				`spec.dnsConfig.searches[2]: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of ` +
					`lower case alphanumeric characters, '_', '-' or '.', and must start and end with an ` +
					`alphanumeric character (e.g. 'example.com', regex used for validation is ` +
					`'_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')`,
				"spec.dnsConfig.options[0].name: Required value",
			}},
		{"tolerations",
			withContainer("") +
				"\ntolerations: [{operator: Exists, value: x}, {key: k, operator: In}, {value: v}, {operator: " +
				"Exists, tolerationSeconds: 3}]", []string{
				`spec.tolerations[0].value: Invalid value: "x": must be empty when operator is Exists`,
				`spec.tolerations[1].operator: Unsupported value: "In": supported values: "Equal", "Exists"`,
				`spec.tolerations[2].operator: Invalid value: "": must be Exists when key is empty, which means ` +
					`every key`,
				`spec.tolerations[3].effect: Invalid value: "": must be NoExecute when tolerationSeconds is set`,
			}},
		{"gates", withContainer("") + "\nschedulingGates: [{name: a}]\nimagePullSecrets: [{}]", []string{
			"spec.imagePullSecrets[0].name: Required value",
			"spec.schedulingGates: Forbidden: the pod is already placed on its node",
		}},
		{
			"ports", withContainer(
				"ports: [{containerPort: 0}, {containerPort: 70000, hostPort: -1, protocol: ICMP, hostIP: x}, " +
					"{containerPort: 1, name: a}, {containerPort: 2, name: a}]"), []string{
				"spec.containers[0].ports[0].containerPort: Required value",
				"spec.containers[0].ports[1].containerPort: Invalid value: 70000: must be between 1 and " +
					"65535, inclusive",
				"spec.containers[0].ports[1].hostPort: Invalid value: -1: must be between 1 and 65535, inclusive",
				`spec.containers[0].ports[1].protocol: Unsupported value: "ICMP": supported values: "TCP", "UDP", ` +
					`"SCTP"`,
				`spec.containers[0].ports[1].hostIP: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 ` +
					`or 2001:db8::ffff)`,
				`spec.containers[0].ports[3].name: Duplicate value: "a"`,
			}},
		{"host ports",
			"containers: [{name: a, image: a, ports: [{containerPort: 1, hostPort: 80}]}, {name: b, image: b, ports: " +
				"[{containerPort: 2, hostPort: 80}, {containerPort: 2, hostPort: 80, protocol: UDP}]}]", []string{
				`spec.containers[1].ports[0].hostPort: Duplicate value: "TCP//80"`,
			}},
		{"host network",
			withContainer("ports: [{containerPort: 80, hostPort: 8080}]") +
				"\nhostNetwork: true\nsecurityContext: {sysctls: [{name: net.core.somaxconn, value: '1'}]}", []string{
				`spec.securityContext.sysctls[0].name: Invalid value: "net.core.somaxconn": may not be set on the ` +
					`host network`,
				"spec.containers[0].ports[0].hostPort: Invalid value: 8080: must be containerPort (80), or left out, " +
					"on the host network",
			}},
		{
			"env", withContainer(
				"env: [{value: x}, {name: 'a=b'}, {name: A, value: x, valueFrom: {fieldRef: {fieldPath: spec.x}}}, " +
					"{name: B, valueFrom: {}}], envFrom: [{}, {secretRef: {name: s}, configMapRef: {name: C}}]"),
			[]string{
				"spec.containers[0].env[0].name: Required value",
				`spec.containers[0].env[1].name: Invalid value: "a=b": a valid environment variable name must ` +
					`consist only of printable ASCII characters other than '='`,
				`spec.containers[0].env[2].valueFrom: Invalid value: "A": cannot be set together with value`,
				`spec.containers[0].env[2].valueFrom.fieldRef.fieldPath: Unsupported value: "spec.x": supported ` +
					`values: "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", ` +
					`"spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"`,
				"spec.containers[0].env[3].valueFrom: Required value: needs one of fieldRef, resourceFieldRef, " +
					"configMapKeyRef, secretKeyRef, fileKeyRef",
				"spec.containers[0].envFrom[0]: Required value: needs one of configMapRef, secretRef",
				"spec.containers[0].envFrom[1].secretRef: Forbidden: cannot be set together with configMapRef",
				`spec.containers[0].envFrom[1].configMapRef.name: Invalid value: "C": a lowercase RFC 1123 ` +
					`subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and ` +
					`end with an alphanumeric character (e.g. 'example.com', regex used for validation is ` +
					`'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
			}},
		{"files with variables",
			"volumes: [{name: e, emptyDir: {}}, {name: h, hostPath: {path: /x}}]\n" +
				withContainer(
					"env: [{name: A, valueFrom: {fileKeyRef: {volumeName: e, path: p, key: k}}}, {name: B, "+
						"valueFrom: {fileKeyRef: {volumeName: h, path: p, key: k}}}, {name: C, valueFrom: "+
						"{fileKeyRef: {volumeName: none, path: ../p, key: k}}}, {name: D, valueFrom: {fileKeyRef: "+
						"{path: p, key: k}}}]"), []string{
				`spec.containers[0].env[1].valueFrom.fileKeyRef.volumeName: Invalid value: "h": referenced volume ` +
					`must be of type emptyDir`,
				`spec.containers[0].env[2].valueFrom.fileKeyRef.volumeName: Not found: "none"`,
				`spec.containers[0].env[2].valueFrom.fileKeyRef.path: Invalid value: "../p": must not contain '..'`,
				"spec.containers[0].env[3].valueFrom.fileKeyRef.volumeName: Required value",
			}},
		{"references",
			withContainer(
				"env: [{name: A, valueFrom: {fieldRef: {fieldPath: \"metadata.labels['a']\"}}}, {name: B, valueFrom: " +
					"{resourceFieldRef: {resource: limits.disk, containerName: x}}}, {name: C, valueFrom: " +
					"{secretKeyRef: {name: s}}}, {name: D, valueFrom: {resourceFieldRef: {resource: " +
					"limits.hugepages-2Mi}}}]"), []string{
				`spec.containers[0].env[1].valueFrom.resourceFieldRef.containerName: Not found: "x"`,
				`spec.containers[0].env[1].valueFrom.resourceFieldRef.resource: Unsupported value: "limits.disk": ` +
					`supported values: "limits.cpu", "limits.memory", "limits.ephemeral-storage", "requests.cpu", ` +
					`"requests.memory", "requests.ephemeral-storage"`,
				"spec.containers[0].env[2].valueFrom.secretKeyRef.key: Required value",
			}},
		{"mounts", "volumes: [{name: v}]\n" +
			withContainer(
				"volumeMounts: [{name: v, mountPath: /a}, {name: w, mountPath: /a, subPath: ../x}, {mountPath: "+
					"'c:d', subPath: /x, subPathExpr: z, name: v}, {name: v}], volumeDevices: [{name: v, "+
					"devicePath: /a}]"), []string{
			`spec.containers[0].volumeMounts[1].name: Not found: "w"`,
			`spec.containers[0].volumeMounts[1].subPath: Invalid value: "../x": must not contain '..'`,
			`spec.containers[0].volumeMounts[1].mountPath: Invalid value: "/a": must be unique`,
			`spec.containers[0].volumeMounts[2].mountPath: Invalid value: "c:d": must not contain ':'`,
			`spec.containers[0].volumeMounts[2].subPath: Invalid value: "/x": must be a relative path`,
			`spec.containers[0].volumeMounts[2].subPathExpr: Invalid value: "z": cannot be set together with subPath`,
			"spec.containers[0].volumeMounts[3].mountPath: Required value",
			`spec.containers[0].volumeDevices[0].name: Invalid value: "v": must be a persistentVolumeClaim or an ` +
				`ephemeral volume`,
			`spec.containers[0].volumeDevices[0].devicePath: Invalid value: "/a": must be unique`,
		}},
		{"mount propagation",
			"volumes: [{name: v}]\n" +
				withContainer(
					"volumeMounts: [{name: v, mountPath: /a, mountPropagation: Bidirectional}, {name: v, mountPath: "+
						"/b, recursiveReadOnly: Enabled}]"), []string{
				"spec.containers[0].volumeMounts[0].mountPropagation: Forbidden: Bidirectional needs a " +
					"privileged container",
				"spec.containers[0].volumeMounts[1].recursiveReadOnly: Forbidden: needs readOnly: true and no " +
					"mountPropagation",
			}},
		{"volumes",
			withContainer("") +
				"\nvolumes: [{name: a, emptyDir: {}, hostPath: {path: /x}}, {name: a}, {}, {name: h, hostPath: " +
				"{path: /a/../b, type: X}}, {name: e, emptyDir: {medium: Tape, sizeLimit: -1}}, {name: s, secret: " +
				"{defaultMode: 01000, items: [{key: k, path: ../x}]}}]", []string{
				"spec.volumes[0].emptyDir: Forbidden: cannot be set together with hostPath",
				`spec.volumes[1].name: Duplicate value: "a"`,
				"spec.volumes[2].name: Required value",
				`spec.volumes[3].hostPath.path: Invalid value: "/a/../b": must not contain '..'`,
				`spec.volumes[3].hostPath.type: Unsupported value: "X": supported values: "", "DirectoryOrCreate", ` +
					`"Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"`,
				`spec.volumes[4].emptyDir.sizeLimit: Invalid value: "-1": must not be negative`,
				`spec.volumes[4].emptyDir.medium: Unsupported value: "Tape": supported values: "", "Memory", ` +
					`"HugePages"`,
				"spec.volumes[5].secret.secretName: Required value",
				"spec.volumes[5].secret.defaultMode: Invalid value: 512: must be between 0 and 0777 (octal), " +
					"both inclusive",
				`spec.volumes[5].secret.items[0].path: Invalid value: "../x": must not contain '..'`,
			}},
		{"projected",
			withContainer("") +
				"\nvolumes: [{name: p, projected: {sources: [{}, {downwardAPI: {items: [{path: a}, {path: ..b, " +
				"resourceFieldRef: {resource: limits.cpu}}]}}]}}]", []string{
				"spec.volumes[0].projected.sources[0]: Required value: needs one of secret, downwardAPI, configMap, " +
					"serviceAccountToken, clusterTrustBundle, podCertificate",
				"spec.volumes[0].projected.sources[1].downwardAPI.items[0].fieldRef: Required value: exactly one of " +
					"fieldRef and resourceFieldRef",
				`spec.volumes[0].projected.sources[1].downwardAPI.items[1].path: Invalid value: "..b": must not ` +
					`start with '..'`,
				"spec.volumes[0].projected.sources[1].downwardAPI.items[1].resourceFieldRef.containerName: " +
					"Required value",
			}},
		{"resources",
			withContainer(
				"resources: {requests: {cpu: 2, gpu: 1, example.com/gpu: 1500m, hugepages-2Mi: 2Mi}, limits: {cpu: " +
					"1, memory: -1}}"), []string{
				`spec.containers[0].resources.limits[memory]: Invalid value: "-1": must not be negative`,
				`spec.containers[0].resources.requests[example.com/gpu]: Invalid value: "1500m": must be a whole ` +
					`number`,
				`spec.containers[0].resources.requests[gpu]: Invalid value: "gpu": must be cpu, memory, ` +
					`ephemeral-storage, hugepages-<size> or a name with a domain such as example.com/gpu`,
				`spec.containers[0].resources.requests[memory]: Invalid value: "-1": must not be negative`,
				`spec.containers[0].resources.requests[cpu]: Invalid value: "2": must be at most the limit, 1`,
				`spec.containers[0].resources.requests[example.com/gpu]: Invalid value: "1500m": must be the same ` +
					`as the limit: example.com/gpu cannot be promised to more than one`,
				`spec.containers[0].resources.requests[gpu]: Invalid value: "1": must be the same as the limit: gpu ` +
					`cannot be promised to more than one`,
				`spec.containers[0].resources.requests[hugepages-2Mi]: Invalid value: "2Mi": must be the same as ` +
					`the limit: hugepages-2Mi cannot be promised to more than one`,
			}},
		{"security",
			withContainer(
				"securityContext: {runAsUser: -1, privileged: true, allowPrivilegeEscalation: false, seccompProfile: "+
					"{type: Localhost}, procMount: Unmasked}") +
				"\nsecurityContext: {fsGroup: -2, seccompProfile: {type: X}, sysctls: [{name: a}, {name: a}, " +
				"{name: 'A b'}]}", []string{
				"spec.securityContext.fsGroup: Invalid value: -2: must be between 0 and 2147483647, inclusive",
				`spec.securityContext.seccompProfile.type: Unsupported value: "X": supported values: "Localhost", ` +
					`"RuntimeDefault", "Unconfined"`,
				`spec.securityContext.sysctls[1].name: Duplicate value: "a"`,
				`spec.securityContext.sysctls[2].name: Invalid value: "A b": must be names of lower case letters, ` +
					`digits, '-' and '_', separated by '.' or '/'`,
				"spec.containers[0].securityContext.runAsUser: Invalid value: -1: must be between 0 and " +
					"2147483647, inclusive",
				"spec.containers[0].securityContext.seccompProfile.localhostProfile: Required value: type " +
					"Localhost needs one",
				`spec.containers[0].securityContext.procMount: Invalid value: "Unmasked": needs hostUsers: false`,
				"spec.containers[0].securityContext.allowPrivilegeEscalation: Invalid value: false: cannot be false " +
					"for a privileged container",
			}},
		{
			"probes", withContainer(
				"livenessProbe: {}, startupProbe: {tcpSocket: {port: 0}, grpc: {port: 80}, successThreshold: 2}, " +
					"readinessProbe: {exec: {}, periodSeconds: -1, terminationGracePeriodSeconds: 3}"), []string{
				"spec.containers[0].startupProbe.grpc: Forbidden: cannot be set together with tcpSocket",
				"spec.containers[0].startupProbe.tcpSocket.port: Invalid value: 0: must be between 1 and " +
					"65535, inclusive",
				"spec.containers[0].livenessProbe: Required value: needs one of exec, httpGet, tcpSocket, grpc",
				"spec.containers[0].readinessProbe.periodSeconds: Invalid value: -1: must be at least 0",
				"spec.containers[0].readinessProbe.exec.command: Required value",
				"spec.containers[0].startupProbe.successThreshold: Invalid value: 2: must be 1",
				"spec.containers[0].readinessProbe.terminationGracePeriodSeconds: Invalid value: 3: must not be set " +
					"for a readiness probe, which kills nothing",
			}},
		{"lifecycle",
			withContainer(
				"lifecycle: {postStart: {httpGet: {port: '', scheme: FTP}}, preStop: {sleep: {seconds: 31}}}"),
			[]string{
				`spec.containers[0].lifecycle.postStart.httpGet.port: Invalid value: "": must contain only ` +
					`alpha-numeric characters (a-z, 0-9), and hyphens (-)`,
				`spec.containers[0].lifecycle.postStart.httpGet.port: Invalid value: "": must contain at least one ` +
					`letter (a-z)`,
				`spec.containers[0].lifecycle.postStart.httpGet.scheme: Unsupported value: "FTP": supported values: ` +
					`"HTTP", "HTTPS"`,
				"spec.containers[0].lifecycle.preStop.sleep.seconds: Invalid value: 31: must be between 0 and " +
					"30, inclusive",
			}},
		{"init containers",
			withContainer("") +
				"\ninitContainers: [{name: i, image: i, readinessProbe: {exec: {command: [x]}}}, {name: s, image: s, " +
				"restartPolicy: Always, readinessProbe: {exec: {command: [x]}}}]", []string{
				"spec.initContainers[0].readinessProbe: Forbidden: is not allowed for an init container that does " +
					"not have restartPolicy Always",
			}},
		{"restart rules",
			withContainer(
				"restartPolicyRules: [{action: Restart}, {action: Jump, exitCodes: {operator: In, values: [256]}}]"),
			[]string{
				"spec.containers[0].restartPolicyRules: Required value: restartPolicy of the container must be set",
				"spec.containers[0].restartPolicyRules[0].exitCodes: Required value",
				`spec.containers[0].restartPolicyRules[1].action: Unsupported value: "Jump": supported values: ` +
					`"Restart", "RestartAllContainers"`,
				"spec.containers[0].restartPolicyRules[1].exitCodes.values[0]: Invalid value: 256: must be between 0 " +
					"and 255, inclusive",
			}},
		{"ephemeral containers",
			withContainer("") +
				"\nvolumes: [{name: v}]\nephemeralContainers: [{name: d, image: d, targetContainerName: x, ports: " +
				"[{containerPort: 1}], lifecycle: {preStop: {sleep: {seconds: 1}}}, resources: {limits: {cpu: 1}}, " +
				"volumeMounts: [{name: v, mountPath: /v, subPath: s}]}, {name: e, image: e, targetContainerName: app}]",
			[]string{
				"spec.ephemeralContainers[0].lifecycle: Forbidden: is not allowed for an ephemeral container",
				"spec.ephemeralContainers[0].ports: Forbidden: is not allowed for an ephemeral container",
				"spec.ephemeralContainers[0].resources: Forbidden: is not allowed for an ephemeral container",
				"spec.ephemeralContainers[0].volumeMounts[0].subPath: Forbidden: is not allowed for an " +
					"ephemeral container",
				`spec.ephemeralContainers[0].targetContainerName: Not found: "x"`,
			}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			objects, err := Decode(
				[]byte("apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: default}\nspec:\n  "+
					indent(tt.spec)), "f.yaml")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, validate(objects[0].Pod)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestValidateMetadata(t *testing.T) {
	tests := []struct {
		name, metadata string
		want           []string
	}{
		{"good", "{name: web.a, namespace: default, uid: 0a1B-2c, labels: {a: b}}", nil},
		{"nothing", "{}", []string{"metadata.name: Required value", "metadata.namespace: Required value"}},
		{"generated name", "{generateName: web-, namespace: default}",
			[]string{"metadata.name: Required value: generateName is not supported, give the pod a name"}},
		{"paths", "{name: ../web, namespace: a/b, uid: ../../etc}", []string{
			`metadata.name: Invalid value: "../web": a lowercase RFC 1123 subdomain must consist of lower case ` +
				`alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. ` +
				`'example.com', regex used for validation is ` +
				`'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
			`metadata.namespace: Invalid value: "a/b": a lowercase RFC 1123 label must consist of lower case ` +
				`alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. ` +
				`'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`,
			`metadata.uid: Invalid value: "../../etc": must be at most 63 letters, digits and '-'`,
		}},
		{"labels", "{name: web, namespace: default, labels: {'a b': c}, annotations: {'-': c}}", []string{
			`metadata.labels: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or ` +
				`'.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or ` +
				`'123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
			`metadata.annotations: Invalid value: "-": name part must consist of alphanumeric characters, '-', '_' ` +
				`or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or ` +
				`'123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			objects, err := Decode([]byte("apiVersion: v1\nkind: Pod\nmetadata: "+tt.metadata+
				"\nspec: {containers: [{name: a, image: b}]}"), "f.yaml")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, validate(objects[0].Pod)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func validate(pod *corev1.Pod) []string {
	Default(pod)
	var all []string
	for _, err := range Validate(pod) {
		all = append(all, err.Error())
	}
	return all
}
