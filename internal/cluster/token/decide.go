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

	"github.com/berth-run/berth/internal/model/object"
)

// Bounds of a token's use, the kubelet's: renewed at 80 % of its life or after a
// day, up to 10 s earlier so that not all pods ask at once.
const (
	useAtMost = 24 * time.Hour
	maxJitter = 10 * time.Second
)

// Delays between tries to renew a token that is good still.
const (
	renewFirst = 10 * time.Second
	renewMax   = 5 * time.Minute
)

// renewal is when a token of that life, issued now, is to be asked for anew.
// jitter is from 0 to 1.
func renewal(now time.Time, life time.Duration, jitter float64) time.Time {
	use := min(life*4/5, useAtMost)
	return now.Add(use - time.Duration(jitter*float64(min(maxJitter, use/2))))
}

// again is when to try once more to renew a token, after that many failures, at
// least 1. jitter is from 0 to 1.
func again(now time.Time, failures int, jitter float64) time.Time {
	delay := min(renewFirst<<min(failures-1, 10), renewMax)
	return now.Add(delay + time.Duration(jitter*float64(delay)/4))
}

// key names a token in the cache and in messages. It holds nothing secret.
func (r Request) key() string {
	return fmt.Sprintf("%s/%s/%s for %q of pod %s/%s living %v", r.Namespace, r.ServiceAccount, r.ServiceAccountUID,
		strings.Join(r.Audiences, ","), r.PodName, r.PodUID, r.Life)
}

// forVolume is the request of a projected volume's source.
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

// anchors are the certificates that a source of a volume selects (KEP-3257): each
// once, without what stands around them. What has to come first is an
// *object.Lacking.
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

// selected are the bundles of a source, and what it asks for in words.
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
		return nil, "", fmt.Errorf("it names neither a ClusterTrustBundle nor a signer")
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
