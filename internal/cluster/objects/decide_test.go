package objects

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
)

func named(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }

// everything is a pod that names an object in every field that can.
func everything() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "web"},
		Spec: corev1.PodSpec{
			RuntimeClassName: new("sandboxed"),
			ImagePullSecrets: []corev1.LocalObjectReference{named("pull"), named("pull"), {}},
			InitContainers: []corev1.Container{{EnvFrom: []corev1.EnvFromSource{
				{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: named("from")}},
				{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: named("from")}},
			}}},
			Containers: []corev1.Container{{Env: []corev1.EnvVar{
				{Name: "A",
					ValueFrom: &corev1.EnvVarSource{
						ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: named("env")}}},
				{Name: "B",
					ValueFrom: &corev1.EnvVarSource{
						SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: named("env")}}},
				{Name: "C", Value: "c"},
			}}},
			Volumes: []corev1.Volume{
				{Name: "a",
					VolumeSource: corev1.VolumeSource{
						ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: named("volume")}}},
				{Name: "b",
					VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "volume"}}},
				{Name: "c",
					VolumeSource: corev1.VolumeSource{
						PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
				{Name: "d", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
				{Name: "e",
					VolumeSource: corev1.VolumeSource{
						CSI: &corev1.CSIVolumeSource{NodePublishSecretRef: &corev1.LocalObjectReference{Name: "csi"}}}},
				{Name: "f",
					VolumeSource: corev1.VolumeSource{
						Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
							{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: named("kube-root-ca.crt")}},
							{Secret: &corev1.SecretProjection{LocalObjectReference: named("projected")}},
							{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{}},
							{PodCertificate: &corev1.PodCertificateProjection{}},
						}}}},
			},
		},
	}
}

func keys(texts ...string) (all []string) { return texts }

func texts(list []object.Key) (all []string) {
	for _, k := range list {
		all = append(all, k.String())
	}
	return all
}

func TestFollowedFor(t *testing.T) {
	const ownReferences = "of a manifest, which gets the objects of the cluster"
	const certificates = "on a node that requests certificates"
	table := keys("ConfigMap app/env", "ConfigMap app/from", "ConfigMap app/kube-root-ca.crt", "ConfigMap app/volume",
		"PersistentVolumeClaim app/data", "PersistentVolumeClaim app/web-d", "RuntimeClass sandboxed",
		"Secret app/csi", "Secret app/env", "Secret app/from", "Secret app/projected", "Secret app/pull",
		"Secret app/volume")
	if d := cmp.Diff(table, texts(Named(everything()))); d != "" {
		t.Errorf("named (-want +got):\n%s", d)
	}
	tests := map[string]struct {
		source pod.Source
		edit   func(*corev1.Pod)
		want   []string
	}{
		"of the API server": {pod.SourceAPI, func(*corev1.Pod) {},
			append(table, "Service app/*", "Service default/kubernetes", "ClusterTrustBundle *")},
		certificates: {pod.SourceAPI, func(*corev1.Pod) {}, append(slices.Clone(table),
			"Service app/*", "Service default/kubernetes", "ClusterTrustBundle *", "PodCertificateRequest *")},
		"of a manifest": {pod.SourceFile, func(*corev1.Pod) {},
			keys("RuntimeClass sandboxed", "Service app/*", "Service default/kubernetes", "ClusterTrustBundle *")},
		ownReferences: {pod.SourceFile, func(*corev1.Pod) {}, append(slices.DeleteFunc(slices.Clone(table),
			func(key string) bool { return strings.HasPrefix(key, object.PersistentVolumeClaim) }),
			"Service app/*", "Service default/kubernetes", "ClusterTrustBundle *")},
		"ended": {pod.SourceAPI, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, nil},
		"no links": {pod.SourceAPI, func(p *corev1.Pod) {
			p.Spec = corev1.PodSpec{EnableServiceLinks: new(false)}
		}, keys("Service default/kubernetes")},
		"in default": {pod.SourceAPI, func(p *corev1.Pod) {
			p.Namespace, p.Spec = "default", corev1.PodSpec{}
		}, keys("Service default/*")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := everything()
			test.edit(p)
			got := followedFor(&pod.Pod{Pod: p, Source: test.source}, name == ownReferences,
				name == certificates)
			if d := cmp.Diff(test.want, texts(got)); d != "" {
				t.Errorf("followed (-want +got):\n%s", d)
			}
		})
	}
}

func TestDelay(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "a",
		errors.New("no relationship found"))
	for _, test := range []struct {
		err      error
		failures int
		want     time.Duration
	}{
		{refused, 1, 100 * time.Millisecond},
		{refused, 20, 5 * time.Second},
		{errors.New("connection refused"), 4, 800 * time.Millisecond},
		{errors.New("connection refused"), 1000, 10 * time.Second},
	} {
		if got := delay(test.err, test.failures); got != test.want {
			t.Errorf("%v, failure %d: %v, want %v", test.err, test.failures, got, test.want)
		}
	}
}

func TestTrim(t *testing.T) {
	meta := func() metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "app", Name: "a", ResourceVersion: "7",
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
			Annotations:   map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "mine": "x"}}
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "a", ResourceVersion: "7",
		Annotations: map[string]string{"mine": "x"}},
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, Data: map[string][]byte{"k": []byte("v")}}
	if d := cmp.Diff(object.Value(secret),
		trim(&corev1.Secret{ObjectMeta: meta(), Data: map[string][]byte{"k": []byte("v")}})); d != "" {
		t.Errorf("secret (-want +got):\n%s", d)
	}
	ports := []corev1.ServicePort{{Name: "http", Port: 80}}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "a", ResourceVersion: "7"},
		Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1", Ports: ports}}
	if d := cmp.Diff(object.Value(service),
		trim(&corev1.Service{ObjectMeta: meta(),
			Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1", Ports: ports,
				Selector: map[string]string{"a": "b"}}})); d != "" {
		t.Errorf("service (-want +got):\n%s", d)
	}
}
