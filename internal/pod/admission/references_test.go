package admission

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
)

func TestObjects(t *testing.T) {
	given := func(key object.Key) bool { return key.Name == "given" }
	waits := func(key string) Answer {
		return Answer{Verdict: NotYet, Reason: ManifestObject,
			Message: "waiting for " + key + " from a manifest: a pod of a manifest does not get the cluster's"}
	}
	const env = "containers: [{name: app, image: a, env: [{name: A, valueFrom: {configMapKeyRef: {name: cluster, " +
		"key: a}}}]}]"
	for name, test := range map[string]struct {
		spec       string
		source     pod.Source
		standalone bool
		want       Answer
	}{
		"nothing":    {spec: "nodeName: here", source: pod.SourceFile},
		"env":        {spec: env, source: pod.SourceFile, want: waits("ConfigMap default/cluster")},
		"of a URL":   {spec: env, source: pod.SourceURL, want: waits("ConfigMap default/cluster")},
		"applied":    {spec: env, source: pod.SourceLocal, want: waits("ConfigMap default/cluster")},
		"of the API": {spec: env},
		"no cluster": {spec: env, source: pod.SourceFile, standalone: true},
		"env from": {spec: "initContainers: [{name: i, image: a, envFrom: [{secretRef: {name: cluster}}]}]",
			source: pod.SourceFile, want: waits("Secret default/cluster")},
		"volume": {spec: "volumes: [{name: v, secret: {secretName: cluster}}]", source: pod.SourceFile,
			want: waits("Secret default/cluster")},
		"projected": {
			spec: "volumes: [{name: v, projected: {sources: [{configMap: {name: given}}, {secret: {name: " +
				"cluster}}]}}]",
			source: pod.SourceFile, want: waits("Secret default/cluster")},
		"claim": {spec: "volumes: [{name: v, persistentVolumeClaim: {claimName: cluster}}]",
			source: pod.SourceFile, want: waits("PersistentVolumeClaim default/cluster")},
		"given": {
			spec: "volumes: [{name: v, configMap: {name: given}}, {name: w, persistentVolumeClaim: " +
				"{claimName: given}}]", source: pod.SourceFile},
		"optional": {spec: "volumes: [{name: v, configMap: {name: cluster, optional: true}}]",
			source: pod.SourceFile},
		"a pull secret": {spec: "imagePullSecrets: [{name: cluster}]", source: pod.SourceFile},
		"made for it": {
			spec:   "volumes: [{name: v, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce]}}}}]",
			source: pod.SourceFile},
		"the node's own": {spec: "volumes: [{name: v, hostPath: {path: /srv}}, {name: w, emptyDir: {}}]",
			source: pod.SourceFile},
	} {
		p := spec(t, test.spec)
		p.Namespace = "default"
		p.Annotations = map[string]string{pod.AnnotationConfigSource: string(test.source)}
		got := checkObjects(In{Pod: p, Supplied: given, Config: Config{Standalone: test.standalone}})
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// With PreventStaticPodAPIReferences: false a pod of a manifest gets the cluster's ConfigMaps and Secrets. Its claims
// still come from manifests.
func TestOwnReferences(t *testing.T) {
	for volume, want := range map[string]Verdict{"secret: {secretName: s}": Admitted, "configMap: {name: c}": Admitted,
		"persistentVolumeClaim: {claimName: p}": NotYet} {
		p := spec(t, "volumes: [{name: v, "+volume+"}]")
		p.Annotations = map[string]string{pod.AnnotationConfigSource: string(pod.SourceFile)}
		if got := checkObjects(In{Pod: p, Config: Config{OwnReferences: true}}); got.Verdict != want {
			t.Errorf("%s: %v, want %v", volume, got.Verdict, want)
		}
	}
}

// In a cluster too a pod of a manifest has nothing that a control plane gives.
func TestControlPlaneFieldsOfManifests(t *testing.T) {
	for from, want := range map[pod.Source]Verdict{pod.SourceFile: Rejected, pod.SourceAPI: Admitted} {
		p := spec(t, "serviceAccountName: robot")
		p.Annotations = map[string]string{pod.AnnotationConfigSource: string(from)}
		if got := checkFields(In{Pod: p}); got.Verdict != want {
			t.Errorf("from %s: %v", from, got)
		}
	}
}
