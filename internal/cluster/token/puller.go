package token

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Puller supplies the service account data that credential providers receive. It is safe for concurrent use.
type Puller struct {
	tokens *Tokens
	client kubernetes.Interface

	mu sync.Mutex
	// last has each account as last received, for times when the API server is away.
	last map[types.NamespacedName]*corev1.ServiceAccount
}

// NewPuller makes a Puller without accounts.
func NewPuller(tokens *Tokens, client kubernetes.Interface) *Puller {
	return &Puller{tokens: tokens, client: client, last: map[types.NamespacedName]*corev1.ServiceAccount{}}
}

// Account returns a service account of a pod of this node. A node may read no other.
func (p *Puller) Account(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error) {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	account, err := unlessRefused(ctx, func() (*corev1.ServiceAccount, error) {
		return p.client.CoreV1().ServiceAccounts(namespace).Get(ctx, name, metav1.GetOptions{})
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil:
		p.last[key] = account
	case answered(err):
		delete(p.last, key)
	case p.last[key] != nil:
		return p.last[key], nil
	}
	return account, err
}

// PullToken returns a token of the pod's service account, bound to the pod.
func (p *Puller) PullToken(ctx context.Context, of *corev1.Pod, account types.UID, audience string) (string, error) {
	t, err := p.tokens.Token(ctx, Request{
		Namespace: of.Namespace, ServiceAccount: of.Spec.ServiceAccountName, ServiceAccountUID: account,
		Audiences: []string{audience}, PodName: of.Name, PodUID: of.UID,
	})
	return t.Value, err
}
