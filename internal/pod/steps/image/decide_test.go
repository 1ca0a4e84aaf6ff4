package image

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestDecide(t *testing.T) {
	now := time.Unix(1000, 0)
	failing := backoff{delay: 10 * time.Second, failed: now.Add(-9 * time.Second)}
	over := backoff{delay: 10 * time.Second, failed: now.Add(-10 * time.Second)}
	cases := []struct {
		policy  corev1.PullPolicy
		present bool
		backoff backoff
		want    action
	}{
		{corev1.PullAlways, false, backoff{}, fetch},
		{corev1.PullAlways, true, backoff{}, fetch},
		{corev1.PullAlways, true, failing, wait},
		{corev1.PullAlways, true, over, fetch},
		{corev1.PullIfNotPresent, false, backoff{}, fetch},
		{corev1.PullIfNotPresent, false, failing, wait},
		{corev1.PullIfNotPresent, false, over, fetch},
		{corev1.PullIfNotPresent, true, failing, use},
		{corev1.PullNever, true, failing, use},
		{corev1.PullNever, false, failing, refuse},
	}
	for _, c := range cases {
		if got := decide(c.policy, c.present, c.backoff, now); got != c.want {
			t.Errorf("%s, present %v, %v: %s, want %s", c.policy, c.present, c.backoff, got, c.want)
		}
	}
}

func TestParse(t *testing.T) {
	digest := "@sha256:7173b809ca12ec5dee4506cd86be934c4596dd234ee82c0662eac04a8c2c71dc"
	cases := []struct {
		image, tagged, full string
		policy              corev1.PullPolicy
	}{
		{"busybox", "busybox:latest", "docker.io/library/busybox:latest", corev1.PullAlways},
		{"busybox:latest", "busybox:latest", "docker.io/library/busybox:latest", corev1.PullAlways},
		{"busybox:1", "busybox:1", "docker.io/library/busybox:1", corev1.PullIfNotPresent},
		{"me/app", "me/app:latest", "docker.io/me/app:latest", corev1.PullAlways},
		{"localhost:5000/app", "localhost:5000/app:latest", "localhost:5000/app:latest", corev1.PullAlways},
		{"busybox" + digest, "busybox" + digest, "docker.io/library/busybox" + digest, corev1.PullIfNotPresent},
		{"busybox:latest" + digest, "busybox:latest" + digest, "docker.io/library/busybox:latest" + digest,
			corev1.PullAlways},
	}
	for _, c := range cases {
		n, err := parse(c.image)
		if err != nil || n.tagged != c.tagged || n.full != c.full || policyOf("", n) != c.policy {
			t.Errorf("%s: %+v, %v", c.image, n, err)
		}
		if !same(c.image, c.full) {
			t.Errorf("%s and %s are not the same", c.image, c.full)
		}
	}
	for _, bad := range []string{"", "UPPER", "a b", "http://x/y", "x:"} {
		if n, err := parse(bad); err == nil {
			t.Errorf("%q is %+v", bad, n)
		}
		if same(bad, bad) {
			t.Errorf("%q is an image", bad)
		}
	}
}
