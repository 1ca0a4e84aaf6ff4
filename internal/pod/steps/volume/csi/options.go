package csi

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/pod/steps/volume"
)

// away reports that the API server has been unreachable since the agent started.
func (o *Options) away() bool { return o.StandsIn != nil && o.StandsIn.Load() }

// secrets returns the data of a Secret, or nothing for a nil reference.
func (o *Options) secrets(ctx context.Context, ref *corev1.SecretReference) (map[string]string, error) {
	if ref == nil {
		return nil, nil
	}
	var s *corev1.Secret
	var err error
	if o.Client != nil && !o.away() {
		s, err = o.Client.CoreV1().Secrets(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
	} else {
		s, err = o.Objects.Secret(ref.Namespace, ref.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("get Secret %s/%s: %w", ref.Namespace, ref.Name, err)
	}
	all := map[string]string{}
	for key, value := range s.Data {
		all[key] = string(value)
	}
	return all, nil
}

// label returns the SELinux label to mount a volume with, or "" for none.
func (o *Options) label(d *storagev1.CSIDriver, r volume.Request) (string, error) {
	if o.Label == nil {
		return "", nil
	}
	options, err := labelOf(d, r)
	if err != nil || options == nil {
		return "", err
	}
	return o.Label(options)
}
