package credential

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Accounts reads the service accounts of pods, and requests tokens for them.
type Accounts interface {
	Account(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error)
	// PullToken returns a token for the audience that is bound to the pod. account is the UID of the pod's service
	// account.
	PullToken(ctx context.Context, p *corev1.Pod, account types.UID, audience string) (string, error)
}

// grant is the part of a pod's service account that a plugin receives. nil means nothing.
type grant struct {
	account     *corev1.ServiceAccount
	token       string
	annotations map[string]string
}

// grant returns the data that the plugin receives for a pod. A nil pod is for a pull by a command. ok is false if the
// plugin must not run for this pod.
func (p *plugin) grant(ctx context.Context, accounts Accounts, owner *corev1.Pod) (g *grant, ok bool, err error) {
	if p.Token == nil {
		return nil, true, nil
	}
	if accounts == nil || owner == nil || owner.Spec.ServiceAccountName == "" {
		return nil, !p.Token.Required, nil
	}
	account, err := accounts.Account(ctx, owner.Namespace, owner.Spec.ServiceAccountName)
	if err != nil {
		return nil, false,
			fmt.Errorf("get service account %s/%s: %w", owner.Namespace, owner.Spec.ServiceAccountName, err)
	}
	g = &grant{account: account, annotations: map[string]string{}}
	for _, key := range slices.Concat(p.Token.RequiredAnnotations, p.Token.OptionalAnnotations) {
		value, ok := account.Annotations[key]
		if ok {
			g.annotations[key] = value
		} else if slices.Contains(p.Token.RequiredAnnotations, key) {
			return nil, false, nil
		}
	}
	g.token, err = accounts.PullToken(ctx, owner, account.UID, p.Token.Audience)
	return g, err == nil, err
}

// find runs the plugin for a pod. source is the service account that its answer belongs to.
func (p *plugin) find(ctx context.Context, accounts Accounts, owner *corev1.Pod, repository string) (all entries,
	source *Secret, err error) {
	g, ok, err := p.grant(ctx, accounts, owner)
	if !ok {
		return nil, nil, err
	}
	all, err = p.provide(ctx, repository, g)
	return all, g.source(), err
}

// key is equal for grants that lead to the same answer.
func (g *grant) key(perToken bool) string {
	if g == nil {
		return ""
	}
	parts := []string{g.account.Namespace, g.account.Name, string(g.account.UID), fmt.Sprintf("%q", g.annotations)}
	if perToken {
		parts = append(parts, g.token)
	}
	return strings.Join(parts, " ")
}

// source returns the service account that the answer to a grant belongs to, or nil if it belongs to the node.
func (g *grant) source() *Secret {
	if g == nil {
		return nil
	}
	return ofAccount(g.account)
}

func ofAccount(a *corev1.ServiceAccount) *Secret {
	return &Secret{Kind: "ServiceAccount", UID: string(a.UID), Namespace: a.Namespace, Name: a.Name,
		Hash: string(a.UID)}
}
