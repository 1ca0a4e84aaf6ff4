package token

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"slices"
	"strings"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/berth-run/berth/internal/base/retry"
	"github.com/berth-run/berth/internal/model/object"
)

// Limits of a token's use, as in the kubelet: it is renewed at 80 % of its life or after a day, up to 10 s earlier so
// that not all pods renew at once.
const (
	useAtMost = 24 * time.Hour
	maxJitter = 10 * time.Second
)

// Delays between tries to renew a token that is still valid.
const (
	renewFirst = 10 * time.Second
	renewMax   = 5 * time.Minute
)

// renewal returns when to renew a token with this life that is issued now. jitter is from 0 to 1.
func renewal(now time.Time, life time.Duration, jitter float64) time.Time {
	use := min(life*4/5, useAtMost)
	return now.Add(use - time.Duration(jitter*float64(min(maxJitter, use/2))))
}

// retryAt returns the time of the next try to renew a token after a number of failures, at least 1. jitter is from 0
// to 1.
func retryAt(now time.Time, failures int, jitter float64) time.Time {
	delay := retry.Delay(renewFirst, renewMax, failures)
	return now.Add(delay + time.Duration(jitter*float64(delay)/4))
}

// key names a token in the cache and in messages. It holds no secret.
func (r Request) key() string {
	return fmt.Sprintf("%s/%s/%s for %q of pod %s/%s living %v", r.Namespace, r.ServiceAccount, r.ServiceAccountUID,
		strings.Join(r.Audiences, ","), r.PodName, r.PodUID, r.Life)
}

// forVolume returns the request for a source of a projected volume.
func forVolume(p *corev1.Pod, s *corev1.ServiceAccountTokenProjection) Request {
	r := Request{Namespace: p.Namespace, ServiceAccount: p.Spec.ServiceAccountName, PodName: p.Name, PodUID: p.UID}
	if s.Audience != "" {
		r.Audiences = []string{s.Audience}
	}
	if s.ExpirationSeconds != nil {
		r.Life = time.Duration(*s.ExpirationSeconds) * time.Second
	}
	return r
}

// anchors returns the certificates that a source of a volume selects (KEP-3257), each once and without surrounding
// text. If a bundle is missing, the error is an *object.Lacking.
func anchors(s *corev1.ClusterTrustBundleProjection, all []*certificatesv1beta1.ClusterTrustBundle) ([]byte, error) {
	optional := s.Optional != nil && *s.Optional
	chosen, what, err := selected(s, all)
	switch {
	case err != nil:
		return nil, err
	case len(chosen) == 0 && optional:
		return []byte{}, nil
	case len(chosen) == 0:
		return nil, &object.Lacking{Key: object.Bundles(), Err: fmt.Errorf("waiting for %s", what)}
	}
	var found [][]byte
	for _, b := range chosen {
		for rest := []byte(b.Spec.TrustBundle); ; {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil {
				break
			}
			found = append(found, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: block.Bytes}))
		}
	}
	slices.SortFunc(found, bytes.Compare)
	return bytes.Join(slices.CompactFunc(found, bytes.Equal), nil), nil
}

// selected returns the bundles that a source selects, and a description of the selection.
func selected(s *corev1.ClusterTrustBundleProjection,
	all []*certificatesv1beta1.ClusterTrustBundle) (chosen []*certificatesv1beta1.ClusterTrustBundle, what string,
	err error) {
	if s.Name != nil {
		for _, b := range all {
			if b.Name == *s.Name {
				chosen = append(chosen, b)
			}
		}
		return chosen, "ClusterTrustBundle " + *s.Name, nil
	}
	if s.SignerName == nil {
		return nil, "", fmt.Errorf("the source names neither a ClusterTrustBundle nor a signer")
	}
	// No selector selects nothing, an empty one everything.
	selector, err := metav1.LabelSelectorAsSelector(s.LabelSelector)
	if err != nil {
		return nil, "", fmt.Errorf("read labelSelector: %w", err)
	}
	for _, b := range all {
		if b.Spec.SignerName == *s.SignerName && selector.Matches(labels.Set(b.Labels)) {
			chosen = append(chosen, b)
		}
	}
	return chosen,
		"a ClusterTrustBundle of the signer " + *s.SignerName + " with the labels " +
			metav1.FormatLabelSelector(s.LabelSelector), nil
}
