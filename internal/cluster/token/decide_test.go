package token

import (
	"encoding/pem"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/model/object"
)

func TestRenewal(t *testing.T) {
	now := time.Unix(0, 0).UTC()
	for _, test := range []struct {
		life   time.Duration
		jitter float64
		want   time.Duration
	}{
		{10 * time.Minute, 0, 8 * time.Minute},
		{10 * time.Minute, 1, 8*time.Minute - 10*time.Second},
		{365 * 24 * time.Hour, 0.5, 24*time.Hour - 5*time.Second},
		{10 * time.Second, 1, 4 * time.Second},
	} {
		if got := renewal(now, test.life, test.jitter).Sub(now); got != test.want {
			t.Errorf("a life of %v with jitter %v: %v, want %v", test.life, test.jitter, got, test.want)
		}
	}
}

func bundle(name, signer, text string, labels map[string]string) *certificatesv1beta1.ClusterTrustBundle {
	return &certificatesv1beta1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       certificatesv1beta1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: text},
	}
}

func certificate(content string) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(content)}))
}

func TestAnchors(t *testing.T) {
	a, b := certificate("a"), certificate("b")
	all := []*certificatesv1beta1.ClusterTrustBundle{
		bundle("plain", "", "ours:\n"+b+a, nil),
		bundle("s:1", "example.com/s", a, map[string]string{"v": "1"}),
		bundle("s:2", "example.com/s", "# two\n"+b+a, map[string]string{"v": "2"}),
	}
	one := &metav1.LabelSelector{MatchLabels: map[string]string{"v": "1"}}
	type source = corev1.ClusterTrustBundleProjection
	for name, test := range map[string]struct {
		source source
		want   string
		err    string
	}{
		"by name": {source{Name: new("plain")}, a + b, ""},
		"a signer's": {source{SignerName: new("example.com/s"), LabelSelector: &metav1.LabelSelector{}}, a + b,
			""},
		"some of them": {source{SignerName: new("example.com/s"), LabelSelector: one}, a, ""},
		"no selector":  {source{SignerName: new("example.com/s"), Optional: new(true)}, "", ""},
		"no such name": {source{Name: new("x")}, "", "waiting for ClusterTrustBundle x"},
		"optional":     {source{Name: new("x"), Optional: new(true)}, "", ""},
		"no such signer": {source{SignerName: new("x"), LabelSelector: one}, "",
			"waiting for a ClusterTrustBundle of the signer x with the labels v=1"},
		"neither of these": {source{}, "", "the source names neither a ClusterTrustBundle nor a signer"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := anchors(&test.source, all)
			if test.err != "" {
				_, waits := errors.AsType[*object.Lacking](err)
				if err == nil || err.Error() != test.err || waits != (name != "neither of these") {
					t.Errorf("error %v, want %s", err, test.err)
				}
				return
			}
			if d := cmp.Diff(test.want, string(got)); d != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, d)
			}
		})
	}
}

// With the feature gate off, a pod with such a source waits with an error that names the gate.
func TestIssueWithoutBundles(t *testing.T) {
	v := &corev1.Volume{VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
		Sources: []corev1.VolumeProjection{{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{}}}}}}
	_, _, err := Issuer{NoBundles: true}.Issue(t.Context(), &corev1.Pod{}, v, 0)
	const want = "the feature gate ClusterTrustBundleProjection is false: this node projects no trust bundles"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
