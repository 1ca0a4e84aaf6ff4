package kubeapitest

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const (
	// kubeletClient is the user and group of kube-apiserver's requests to nodes.
	kubeletClient = "kube-apiserver-kubelet-client"
	// bootstrappers is the group of the bootstrap token.
	bootstrappers = "system:bootstrappers:test"
	tokenID       = "berth0"
	tokenSecret   = "0123456789abcdef"
)

// grant adds the rights that a real cluster has and kube-apiserver does not create itself: its own rights at nodes,
// and the rights of nodes to join by a token and to renew certificates.
func (s *servers) grant(ctx context.Context) error {
	client, err := kubernetes.NewForConfig(s.admin)
	if err != nil {
		return err
	}
	const csr = "system:certificates.k8s.io:certificatesigningrequests:"
	for role, group := range map[string]string{
		"system:kubelet-api-admin": kubeletClient,
		"system:node-bootstrapper": bootstrappers,
		csr + "nodeclient":         bootstrappers,
		csr + "selfnodeclient":     "system:nodes",
	} {
		_, err := client.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "test:" + role},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: group}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("grant %s: %w", role, err)
		}
	}
	// kube-apiserver creates kube-system a moment after its start.
	return s.api.answers(ctx, func() error {
		_, err := client.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "bootstrap-token-" + tokenID},
			Type:       corev1.SecretTypeBootstrapToken,
			StringData: map[string]string{
				"token-id": tokenID, "token-secret": tokenSecret, "auth-extra-groups": bootstrappers,
				"usage-bootstrap-authentication": "true", "usage-bootstrap-signing": "true",
			},
		}, metav1.CreateOptions{})
		return err
	})
}

// namespace makes a namespace for pods. It also makes the account and the authority's certificate that each pod
// refers to, because there may be no controller for them.
func (s *servers) namespace(ctx context.Context, name string) error {
	client, err := kubernetes.NewForConfig(s.admin)
	if err != nil {
		return err
	}
	if _, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make namespace %s: %w", name, err)
	}
	_, err = client.CoreV1().ServiceAccounts(name).Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make service account of %s: %w", name, err)
	}
	_, err = client.CoreV1().ConfigMaps(name).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt"}, Data: map[string]string{"ca.crt": string(s.ca.pem)},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make kube-root-ca.crt of %s: %w", name, err)
	}
	return nil
}
