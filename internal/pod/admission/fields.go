package admission

import (
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Status is this node's treatment of a field of a pod's spec.
type Status int

const (
	// Works means that the field has the effect that Kubernetes gives it. The fields below it have entries of their
	// own.
	Works Status = iota
	// Whole means that the field works with all fields below it.
	Whole
	// Scheduled means that the field is for a scheduler or another controller. The node accepts it with all fields
	// below it.
	Scheduled
	// Ignored means that the field has no meaning on Linux. It is ignored with all fields below it, as by a kubelet.
	Ignored
	// Standalone means that the field works with all fields below it, also without a control plane, where a kubelet
	// refuses the pod. The objects that it names come from manifests.
	Standalone
	// Joined means that the field needs a control plane. A standalone agent refuses it. Every agent refuses it in a pod
	// of a manifest, which the API server does not know.
	Joined
	// Newer means that the field is newer than the Kubernetes version that is followed. A node of a cluster runs a pod
	// of the API server without it, as a kubelet of that version does. Elsewhere a pod that sets it is rejected: its
	// manifest was written for this node.
	Newer
	// Refused means that a pod that sets the field is rejected.
	Refused
)

func (s Status) String() string {
	return [...]string{"works", "works", "scheduler", "ignored", "standalone", "joined", "newer", "refused"}[s]
}

// Field is the classification of one field.
type Field struct {
	// Path is the type and the field as the API spells them, such as PodSpec.runtimeClassName.
	Path   string
	Status Status
	// Why explains to users why the field is refused, or the limits of its effect.
	Why string
	// when limits the refusal to some values; owner points to a value of the type. nil: every value is refused.
	when func(owner any) bool
}

func where[T any](f func(*T) bool) func(any) bool {
	return func(owner any) bool {
		t, ok := owner.(*T)
		return ok && f(t)
	}
}

// defaultAccount is the service account of pods that name none. The API server of a cluster writes it into every pod,
// so that manifests which were copied from a cluster have it.
const defaultAccount = "default"

// Reasons that several fields share.
const (
	noAccounts = "service accounts belong to a control plane"
	noClaims   = "the scheduler of a cluster allocates ResourceClaims, and the API server has them"
	newer      = "newer than the Kubernetes version that is followed"
	looser     = newer + ", and a mount without them could run or do more than the pod wants"
	migrated   = "as a volume of the CSI driver that Kubernetes has migrated it to"
	removed    = "Kubernetes has removed this kind of volume"
	windows    = "for Windows nodes"
	noSELinux  = "on a host without SELinux there are no labels, as with the kubelet; on one that has it, only " +
		"external runtimes set them, and the embedded one blocks the pod"
	noAppArmor = "a host without AppArmor blocks the pod"
)

// Fields classifies every field of a pod's spec that a manifest can set.
func Fields() []Field {
	var all []Field
	for _, list := range [][]Field{podFields(), containerFields(), handlerFields(), volumeFields(), contentFields(),
		securityFields()} {
		all = append(all, list...)
	}
	return all
}

func podFields() []Field {
	return []Field{
		{Path: "PodSpec.volumes"},
		{Path: "PodSpec.initContainers"},
		{Path: "PodSpec.containers"},
		{Path: "PodSpec.ephemeralContainers"},
		{Path: "PodSpec.restartPolicy"},
		{Path: "PodSpec.terminationGracePeriodSeconds"},
		{Path: "PodSpec.activeDeadlineSeconds"},
		{Path: "PodSpec.dnsPolicy"},
		{Path: "PodSpec.nodeSelector"},
		{Path: "PodSpec.serviceAccountName", Status: Joined,
			Why:  noAccounts + "; \"default\", which every pod of a cluster has, is accepted and has no token",
			when: where(func(s *corev1.PodSpec) bool { return s.ServiceAccountName != defaultAccount })},
		{Path: "PodSpec.serviceAccount", Status: Joined, Why: noAccounts,
			when: where(func(s *corev1.PodSpec) bool {
				return s.DeprecatedServiceAccount != s.ServiceAccountName &&
					s.DeprecatedServiceAccount != defaultAccount
			})}, // which it is a copy of
		{Path: "PodSpec.automountServiceAccountToken", Status: Joined,
			Why:  noAccounts + ", and a pod that asks for a token could not work without; false is accepted",
			when: where(func(s *corev1.PodSpec) bool { return *s.AutomountServiceAccountToken })},
		{Path: "PodSpec.nodeName"},
		{Path: "PodSpec.hostNetwork"},
		{Path: "PodSpec.hostPID"},
		{Path: "PodSpec.hostIPC"},
		{Path: "PodSpec.shareProcessNamespace"},
		{Path: "PodSpec.securityContext"},
		{Path: "PodSpec.imagePullSecrets", Status: Standalone},
		{Path: "PodSpec.hostname"},
		{Path: "PodSpec.subdomain"},
		{Path: "PodSpec.affinity"},
		{Path: "PodSpec.schedulerName", Status: Scheduled},
		{Path: "PodSpec.tolerations", Status: Whole},
		{Path: "PodSpec.hostAliases", Status: Whole},
		{Path: "PodSpec.priorityClassName",
			Why: "system-node-critical and system-cluster-critical have their priorities; beside another class the " +
				"manifest names its priority, which is 0 otherwise"},
		{Path: "PodSpec.priority", Why: "from 2000000000 on the pod is critical (admission.md)"},
		{Path: "PodSpec.dnsConfig", Status: Whole},
		{Path: "PodSpec.readinessGates", Status: Whole, Why: "the conditions are set with berth condition"},
		{Path: "PodSpec.runtimeClassName", Why: "a pod whose RuntimeClass is not there waits for it"},
		{Path: "PodSpec.enableServiceLinks", Why: "without a control plane there are no services to link to"},
		{Path: "PodSpec.preemptionPolicy", Status: Scheduled},
		{Path: "PodSpec.overhead"},
		{Path: "PodSpec.topologySpreadConstraints", Status: Scheduled},
		{Path: "PodSpec.setHostnameAsFQDN"},
		{Path: "PodSpec.os", Status: Whole},
		{Path: "PodSpec.hostUsers",
			Why: "false blocks the pod while the kernel, the file system or the runtime cannot do it"},
		{Path: "PodSpec.schedulingGates", Status: Refused, Why: "a gated pod is not to run yet: remove the gates"},
		{Path: "PodSpec.resourceClaims", Status: Joined, Why: noClaims},
		{Path: "PodSpec.resources"},
		{Path: "PodSpec.hostnameOverride"},
		{Path: "PodSpec.schedulingGroup", Status: Scheduled},
		{Path: "PodSpec.evictionResponders", Status: Newer, Why: newer},

		{Path: "Affinity.nodeAffinity", Status: Whole},
		{Path: "Affinity.podAffinity", Status: Scheduled},
		{Path: "Affinity.podAntiAffinity", Status: Scheduled},

		{Path: "ResourceRequirements.limits"},
		{Path: "ResourceRequirements.requests"},
		{Path: "ResourceRequirements.claims", Status: Joined, Why: noClaims},
	}
}

// containerFields classifies the fields that containers and ephemeral containers share.
func containerFields() []Field {
	return []Field{
		{Path: "Container.name"},
		{Path: "Container.image"},
		{Path: "Container.command"},
		{Path: "Container.args"},
		{Path: "Container.workingDir"},
		{Path: "Container.ports", Status: Whole},
		{Path: "Container.envFrom", Status: Whole},
		{Path: "Container.env"},
		{Path: "Container.resources"},
		{Path: "Container.resizePolicy", Status: Whole, Why: "it says how a resize in place is done"},
		{Path: "Container.restartPolicy"},
		{Path: "Container.restartPolicyRules", Status: Whole},
		{Path: "Container.volumeMounts"},
		{Path: "Container.volumeDevices", Status: Whole},
		{Path: "Container.livenessProbe"},
		{Path: "Container.readinessProbe"},
		{Path: "Container.startupProbe"},
		{Path: "Container.lifecycle"},
		{Path: "Container.terminationMessagePath"},
		{Path: "Container.terminationMessagePolicy"},
		{Path: "Container.imagePullPolicy"},
		{Path: "Container.securityContext"},
		{Path: "Container.stdin"},
		{Path: "Container.stdinOnce"},
		{Path: "Container.tty"},
		{Path: "EphemeralContainer.targetContainerName"},

		{Path: "EnvVar.name"},
		{Path: "EnvVar.value"},
		{Path: "EnvVar.valueFrom"},
		{Path: "EnvVarSource.fieldRef", Status: Whole},
		{Path: "EnvVarSource.resourceFieldRef", Status: Whole},
		{Path: "EnvVarSource.configMapKeyRef", Status: Whole},
		{Path: "EnvVarSource.secretKeyRef", Status: Whole},
		{Path: "EnvVarSource.fileKeyRef", Status: Whole},

		{Path: "VolumeMount.name"},
		{Path: "VolumeMount.readOnly"},
		{Path: "VolumeMount.recursiveReadOnly"},
		{Path: "VolumeMount.mountPath"},
		{Path: "VolumeMount.subPath"},
		{Path: "VolumeMount.mountPropagation"},
		{Path: "VolumeMount.subPathExpr"},
		{Path: "VolumeMount.bindMountOptions", Status: Refused, Why: looser},
	}
}

// handlerFields classifies the fields of probes and lifecycle handlers.
func handlerFields() []Field {
	return []Field{
		{Path: "Probe.exec", Status: Whole},
		{Path: "Probe.httpGet"},
		{Path: "Probe.tcpSocket", Status: Whole},
		{Path: "Probe.grpc"},
		{Path: "Probe.initialDelaySeconds"},
		{Path: "Probe.timeoutSeconds"},
		{Path: "Probe.periodSeconds"},
		{Path: "Probe.successThreshold"},
		{Path: "Probe.failureThreshold"},
		{Path: "Probe.terminationGracePeriodSeconds"},

		{Path: "HTTPGetAction.path"},
		{Path: "HTTPGetAction.port", Status: Whole},
		{Path: "HTTPGetAction.host"},
		{Path: "HTTPGetAction.scheme"},
		{Path: "HTTPGetAction.httpHeaders", Status: Whole},
		{Path: "HTTPGetAction.protocol", Status: Newer, Why: "HTTP/2 is " + newer,
			when: where(func(a *corev1.HTTPGetAction) bool { return *a.Protocol != corev1.HTTPProtocolHTTP1 })},
		{Path: "GRPCAction.port"},
		{Path: "GRPCAction.service"},
		{Path: "GRPCAction.mode", Status: Newer, Why: "TLS is " + newer,
			when: where(func(a *corev1.GRPCAction) bool { return *a.Mode != corev1.GRPCProbeModePlaintext })},

		{Path: "Lifecycle.postStart"},
		{Path: "Lifecycle.preStop"},
		{Path: "Lifecycle.stopSignal"},
		{Path: "LifecycleHandler.exec", Status: Whole},
		{Path: "LifecycleHandler.httpGet"},
		{Path: "LifecycleHandler.tcpSocket", Status: Whole},
		{Path: "LifecycleHandler.sleep", Status: Whole},
	}
}

func volumeFields() []Field {
	return []Field{
		{Path: "Volume.name"},
		{Path: "Volume.hostPath", Status: Whole},
		{Path: "Volume.emptyDir"},
		{Path: "EmptyDirVolumeSource.medium"},
		{Path: "EmptyDirVolumeSource.sizeLimit", Status: Whole,
			Why: "on disk the volume is measured, and its pod evicted when it holds more"},
		{Path: "EmptyDirVolumeSource.mode"},
		{Path: "Volume.configMap"},
		{Path: "Volume.secret"},
		{Path: "Volume.downwardAPI"},
		{Path: "Volume.projected"},
		{Path: "Volume.persistentVolumeClaim", Status: Standalone,
			Why: "bound to hostPath, local, nfs, iscsi, fc, flexVolume and csi PersistentVolumes, or to a directory " +
				"that is made for it; on a node of a cluster by the control plane"},
		{Path: "Volume.ephemeral", Status: Standalone, Why: "removed with the pod"},
		{Path: "Volume.csi", Status: Joined, Why: "the driver's CSIDriver object says that it has such volumes"},
		{Path: "Volume.nfs", Status: Whole, Why: "by the kernel's NFS client; no program is needed"},
		{Path: "Volume.iscsi", Status: Whole, Why: "by iscsiadm of this machine (open-iscsi)"},
		{Path: "Volume.fc", Status: Whole, Why: "a disk that udev has a link to in /dev/disk"},
		{Path: "Volume.flexVolume", Status: Whole, Why: "by a driver in volumePluginDir"},
		{Path: "Volume.image", Status: Whole},
		{Path: "Volume.gitRepo", Status: Refused,
			Why: "Kubernetes has turned this kind of volume off; clone in an init container"},
		{Path: "Volume.gcePersistentDisk", Status: Joined, Why: migrated},
		{Path: "Volume.awsElasticBlockStore", Status: Joined, Why: migrated},
		{Path: "Volume.azureFile", Status: Joined, Why: migrated},
		{Path: "Volume.azureDisk", Status: Joined, Why: migrated},
		{Path: "Volume.cinder", Status: Joined, Why: migrated},
		{Path: "Volume.vsphereVolume", Status: Joined, Why: migrated},
		{Path: "Volume.portworxVolume", Status: Joined, Why: migrated},
		{Path: "Volume.glusterfs", Status: Refused, Why: removed},
		{Path: "Volume.rbd", Status: Refused, Why: removed},
		{Path: "Volume.cephfs", Status: Refused, Why: removed},
		{Path: "Volume.flocker", Status: Refused, Why: removed},
		{Path: "Volume.quobyte", Status: Refused, Why: removed},
		{Path: "Volume.photonPersistentDisk", Status: Refused, Why: removed},
		{Path: "Volume.scaleIO", Status: Refused, Why: removed},
		{Path: "Volume.storageos", Status: Refused, Why: removed},
	}
}

// contentFields classifies the fields of volumes whose files come from objects or from the pod.
func contentFields() []Field {
	list := []Field{
		{Path: "KeyToPath.user", Status: Newer, Why: newer},
		{Path: "DownwardAPIVolumeFile.fieldRef", Status: Whole},
		{Path: "DownwardAPIVolumeFile.resourceFieldRef", Status: Whole},
		{Path: "DownwardAPIVolumeFile.user", Status: Newer, Why: newer},
		{Path: "VolumeProjection.serviceAccountToken", Status: Joined,
			Why: "service accounts belong to a control plane"},
		{Path: "VolumeProjection.clusterTrustBundle", Status: Joined, Why: "trust bundles belong to a control plane"},
		{Path: "VolumeProjection.podCertificate", Status: Joined,
			Why: "signers of a cluster issue certificates of pods; the feature gate PodCertificateRequest must be " +
				"true"},
	}
	for _, kind := range []string{"ConfigMap", "Secret", "DownwardAPI", "Projected"} {
		list = append(list, Field{Path: kind + "VolumeSource.defaultMode"},
			Field{Path: kind + "VolumeSource.defaultUser", Status: Newer, Why: newer})
	}
	for _, path := range []string{
		"KeyToPath.key", "KeyToPath.path", "KeyToPath.mode", "DownwardAPIVolumeFile.path", "DownwardAPIVolumeFile.mode",
		"ConfigMapVolumeSource.name", "ConfigMapVolumeSource.items", "ConfigMapVolumeSource.optional",
		"SecretVolumeSource.secretName", "SecretVolumeSource.items", "SecretVolumeSource.optional",
		"DownwardAPIVolumeSource.items", "ProjectedVolumeSource.sources",
		"VolumeProjection.configMap", "VolumeProjection.secret", "VolumeProjection.downwardAPI",
		"ConfigMapProjection.name", "ConfigMapProjection.items", "ConfigMapProjection.optional",
		"SecretProjection.name", "SecretProjection.items", "SecretProjection.optional", "DownwardAPIProjection.items",
	} {
		list = append(list, Field{Path: path})
	}
	return list
}

func securityFields() []Field {
	return []Field{
		{Path: "PodSecurityContext.seLinuxOptions", Status: Whole, Why: noSELinux},
		{Path: "PodSecurityContext.windowsOptions", Status: Ignored, Why: windows},
		{Path: "PodSecurityContext.runAsUser"},
		{Path: "PodSecurityContext.runAsGroup"},
		{Path: "PodSecurityContext.runAsNonRoot"},
		{Path: "PodSecurityContext.supplementalGroups"},
		{Path: "PodSecurityContext.supplementalGroupsPolicy",
			Why: "Strict blocks the pod while the runtime does not support it"},
		{Path: "PodSecurityContext.fsGroup"},
		{Path: "PodSecurityContext.sysctls", Status: Whole,
			Why: "safe sysctls, and those that allowedUnsafeSysctls lists"},
		{Path: "PodSecurityContext.fsGroupChangePolicy",
			Why: "it has no effect on emptyDir, which is made with the group, and hostPath, which keeps its own"},
		{Path: "PodSecurityContext.seccompProfile", Status: Whole},
		{Path: "PodSecurityContext.appArmorProfile", Status: Whole, Why: noAppArmor},
		{Path: "PodSecurityContext.seLinuxChangePolicy",
			Why: "the runtime labels the files of volumes one by one; a ReadWriteOncePod volume of a CSI driver with " +
				"`seLinuxMount` is mounted with the label"},

		{Path: "SecurityContext.capabilities", Status: Whole},
		{Path: "SecurityContext.privileged"},
		{Path: "SecurityContext.seLinuxOptions", Status: Whole, Why: noSELinux},
		{Path: "SecurityContext.windowsOptions", Status: Ignored, Why: windows},
		{Path: "SecurityContext.runAsUser"},
		{Path: "SecurityContext.runAsGroup"},
		{Path: "SecurityContext.runAsNonRoot"},
		{Path: "SecurityContext.readOnlyRootFilesystem"},
		{Path: "SecurityContext.allowPrivilegeEscalation"},
		{Path: "SecurityContext.procMount", Why: "Unmasked needs hostUsers: false"},
		{Path: "SecurityContext.seccompProfile", Status: Whole},
		{Path: "SecurityContext.appArmorProfile", Status: Whole, Why: noAppArmor},
	}
}

// checkFields rejects a pod that sets a refused field, so that no field is silently ignored.
func checkFields(in In) Answer {
	w := walker{standalone: in.Config.Standalone || ofManifest(in.Pod), fields: map[string]Field{}}
	for _, f := range Fields() {
		w.fields[f.Path] = f
	}
	w.walk(reflect.ValueOf(&in.Pod.Spec).Elem(), "PodSpec", "spec")
	if len(w.refused) == 0 {
		return Answer{}
	}
	return reject(UnsupportedField, "%s", strings.Join(w.refused, "; "))
}

// walker visits the fields that are set.
type walker struct {
	standalone bool
	fields     map[string]Field
	refused    []string
}

// walk visits the fields of a struct. name is its type, as in Field.Path.
func (w *walker) walk(v reflect.Value, name, path string) {
	for i := range v.NumField() {
		value, field := v.Field(i), v.Type().Field(i)
		if isUnset(value) {
			continue
		}
		json := jsonName(field)
		if json == "" { // embedded
			w.walk(value, embeddedName(name, field.Name), path)
			continue
		}
		at := path + "." + json
		f, known := w.fields[name+"."+json]
		switch {
		case !known:
			w.refuse(at, "this version does not know the field")
		case f.Status == Refused, (f.Status == Joined || f.Status == Newer) && w.standalone:
			if f.when == nil || f.when(v.Addr().Interface()) {
				w.refuse(at, f.Why)
			}
		case f.Status == Works:
			w.descend(value, at)
		}
	}
}

func (w *walker) refuse(path, why string) {
	w.refused = append(w.refused, fmt.Sprintf("%s: %s", path, why))
}

// descend visits the values below a field.
func (w *walker) descend(v reflect.Value, path string) {
	switch k := v.Kind(); {
	case k == reflect.Pointer:
		w.descend(v.Elem(), path)
	case k == reflect.Slice:
		for i := range v.Len() {
			w.descend(v.Index(i), fmt.Sprintf("%s[%d]", path, i))
		}
	case k == reflect.Struct && isAPI(v.Type()):
		w.walk(v, v.Type().Name(), path)
	}
}

func isUnset(v reflect.Value) bool {
	if k := v.Kind(); k == reflect.Slice || k == reflect.Map {
		return v.Len() == 0
	}
	return v.IsZero()
}

// isAPI reports whether a type belongs to the API, and is not a value such as a quantity.
func isAPI(t reflect.Type) bool { return t.PkgPath() == reflect.TypeFor[corev1.Pod]().PkgPath() }

// embeddedName returns the type that lists the fields of an embedded struct. It is the embedding type, except for the
// fields that all kinds of containers share: Container lists them.
func embeddedName(in, embedded string) string {
	if embedded == "EphemeralContainerCommon" {
		return "Container"
	}
	return in
}

// jsonName returns the name of a field in a manifest; "" for an embedded field.
func jsonName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	return name
}
