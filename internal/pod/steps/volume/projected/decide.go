package projected

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/steps/volume/payload"
)

// userOf returns the user that all containers of the pod run as. It is nil if they run as several users, or as the user
// of their image.
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

// credential is a file that was issued to a pod. Only the user or the group that the pod runs as may read it; if
// neither is known, every user may (KEP-2451).
func credential(p *corev1.Pod, data []byte, mode int32) payload.File {
	f := payload.File{Data: data, Mode: mode, User: userOf(p)}
	grouped := p.Spec.SecurityContext != nil && p.Spec.SecurityContext.FSGroup != nil
	if f.User != nil || grouped {
		f.Mode = 0o600
	}
	return f
}

// isIssued reports whether only a control plane can serve a source.
func isIssued(s corev1.VolumeProjection) bool {
	return s.ServiceAccountToken != nil || s.ClusterTrustBundle != nil || s.PodCertificate != nil
}
