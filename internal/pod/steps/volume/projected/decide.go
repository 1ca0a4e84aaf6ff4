package projected

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/steps/volume/payload"
)

// userOf is the user that all containers of the pod run as, or nil: they may
// run as several, or as what their images say.
func userOf(p *corev1.Pod) *int64 {
	var common *int64
	for i, c := range pod.Containers(p) {
		var user *int64
		if s := p.Spec.SecurityContext; s != nil {
			user = s.RunAsUser
		}
		if s := c.SecurityContext; s != nil && s.RunAsUser != nil {
			user = s.RunAsUser
		}
		if user == nil || i > 0 && *common != *user {
			return nil
		}
		common = user
	}
	return common
}

// credential is a file with what was issued to a pod. It is for the user that the
// pod runs as, or its group, alone; if neither is known, for all (KEP-2451).
func credential(p *corev1.Pod, data []byte, mode int32) payload.File {
	f := payload.File{Data: data, Mode: mode, User: userOf(p)}
	grouped := p.Spec.SecurityContext != nil && p.Spec.SecurityContext.FSGroup != nil
	if f.User != nil || grouped {
		f.Mode = 0o600
	}
	return f
}

// isIssued tells the sources that only a control plane serves.
func isIssued(s corev1.VolumeProjection) bool {
	return s.ServiceAccountToken != nil || s.ClusterTrustBundle != nil || s.PodCertificate != nil
}
