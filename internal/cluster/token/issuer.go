package token

import (
	"context"
	"errors"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
)

type certificates interface {
	// Files returns the files of a podCertificate source. The error is an *object.Lacking until there is a certificate.
	Files(p *corev1.Pod, v *corev1.Volume, source int) (map[string][]byte, error)
}

type bundles interface {
	Bundles() ([]*certificatesv1beta1.ClusterTrustBundle, error)
}

// Issuer makes the files of projected volumes that only a control plane can issue.
type Issuer struct {
	Tokens *Tokens
	// Bundles returns the trust bundles of the cluster.
	Bundles bundles
	// NoBundles refuses them (feature gate ClusterTrustBundleProjection: false).
	NoBundles bool
	// Certificates requests certificates of pods. It is nil unless the feature gate PodCertificateRequest is true.
	Certificates certificates
}

// Issue returns the files of one source of a pod's projected volume, by path. until is when they must be renewed, or
// zero for never.
func (i Issuer) Issue(ctx context.Context, p *corev1.Pod, v *corev1.Volume, source int) (files map[string][]byte,
	until time.Time, err error) {
	switch s := v.Projected.Sources[source]; {
	case s.ServiceAccountToken != nil && s.ServiceAccountToken.User != nil,
		s.ClusterTrustBundle != nil && s.ClusterTrustBundle.User != nil,
		s.PodCertificate != nil && s.PodCertificate.User != nil:
		return nil, until,
			errors.New(
				"this version does not set the user of a file: leave out user, the file is the pod's user's " +
					"if it has one")
	case s.ServiceAccountToken != nil:
		token, err := i.Tokens.Token(ctx, forVolume(p, s.ServiceAccountToken))
		if err != nil {
			return nil, until, err
		}
		return map[string][]byte{s.ServiceAccountToken.Path: []byte(token.Value)}, token.Renew, nil
	case s.ClusterTrustBundle != nil && i.NoBundles:
		return nil, until,
			errors.New("the feature gate ClusterTrustBundleProjection is false: this node projects no trust bundles")
	case s.ClusterTrustBundle != nil:
		all, err := i.Bundles.Bundles()
		if err != nil {
			return nil, until, err
		}
		text, err := anchors(s.ClusterTrustBundle, all)
		return map[string][]byte{s.ClusterTrustBundle.Path: text}, until, err
	case s.PodCertificate != nil && i.Certificates == nil:
		return nil, until,
			errors.New("the feature gate PodCertificateRequest is false, which is its default in Kubernetes 1.36: " +
				"this node requests no certificates for pods")
	case s.PodCertificate != nil:
		files, err = i.Certificates.Files(p, v, source)
		return files, until, err
	}
	return nil, until, errors.New("the volume source needs no control plane")
}
