package test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/berth-run/berth/internal/cluster/kubeapi/kubeapitest"
	"github.com/berth-run/berth/test/kubelet"
)

// newJoinedSubject starts a control plane and an agent that is its node.
func newJoinedSubject(t *testing.T) (*kubeapitest.Cluster, *subject) {
	t.Helper()
	keepSettings(t)
	c := kubeapitest.Start(t, kubeapitest.Options{Controllers: true})
	address, err := kubelet.HostAddress()
	check(t, err)
	config := joinedConfig(c, address, nodePortBase) // of no script: places begin at 1
	s := newSubject(t, "embedded", config, "--kubeconfig", c.NodeKubeconfig(nodeName),
		"--node-ip", address)
	s.wait("the node to be ready", patience, func(ctx context.Context) error {
		node, err := c.Client().CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("conditions %+v", node.Status.Conditions)
	})
	return c, s
}

// putObject creates a pod on the node, or creates or updates a ConfigMap. A pod that exists is left as it is: an
// earlier call has created it, whose answer was lost.
func putObject(ctx context.Context, client kubernetes.Interface, text string) error {
	var kind metav1.TypeMeta
	if err := yaml.Unmarshal([]byte(text), &kind); err != nil {
		return err
	}
	if kind.Kind == "Pod" {
		var p corev1.Pod
		if err := yaml.UnmarshalStrict([]byte(text), &p); err != nil {
			return err
		}
		p.Spec.NodeName = nodeName
		_, err := client.CoreV1().Pods("default").Create(ctx, &p, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	}
	var m corev1.ConfigMap
	if err := yaml.UnmarshalStrict([]byte(text), &m); err != nil {
		return err
	}
	maps := client.CoreV1().ConfigMaps("default")
	_, err := maps.Create(ctx, &m, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = maps.Update(ctx, &m, metav1.UpdateOptions{})
	}
	return err
}

// dropPod deletes a pod and the ConfigMap of its name.
func dropPod(ctx context.Context, client kubernetes.Interface, name string) error {
	err := client.CoreV1().Pods("default").Delete(ctx, name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		err = nil
	}
	gone := client.CoreV1().ConfigMaps("default").Delete(ctx, name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(gone) {
		gone = nil
	}
	return errors.Join(err, gone)
}
