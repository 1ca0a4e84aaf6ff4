package credential

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Accounts are the service accounts of pods, and their tokens.
type Accounts interface {
	Account(ctx context.Context, namespace, name string) (*corev1.ServiceAccount, error)
	// PullToken is bound to the pod, which has that account, and for the audience.
	PullToken(ctx context.Context, p *corev1.Pod, account types.UID, audience string) (string, error)
}

// grant is what a plugin is given of a pod's service account. nil: nothing.
type grant struct {
	account     *corev1.ServiceAccount
	token       string
	annotations map[string]string
}

// grant is for one pod; nil is nobody's. ok is false for a plugin that is not to
// be asked for this pod.
func (p *plugin) grant(ctx context.Context, accounts Accounts, of *corev1.Pod) (g *grant, ok bool, err error) {
	if p.Token == nil {
		return nil, true, nil
	}
	if accounts == nil || of == nil || of.Spec.ServiceAccountName == "" {
		return nil, !p.Token.Required, nil
	}
	account, err := accounts.Account(ctx, of.Namespace, of.Spec.ServiceAccountName)
	if err != nil {
		return nil, false, fmt.Errorf("get service account %s/%s: %w", of.Namespace, of.Spec.ServiceAccountName, err)
	}
	g = &grant{account: account, annotations: map[string]string{}}
	for _, key := range slices.Concat(p.Token.RequiredAnnotations, p.Token.OptionalAnnotations) {
		value, has := account.Annotations[key]
		if has {
			g.annotations[key] = value
		} else if slices.Contains(p.Token.RequiredAnnotations, key) {
			return nil, false, nil
		}
	}
	g.token, err = accounts.PullToken(ctx, of, account.UID, p.Token.Audience)
	return g, err == nil, err
}

// find asks the plugin for a pod. source is whose its answer is.
func (p *plugin) find(ctx context.Context, accounts Accounts, of *corev1.Pod, repository string) (all entries,
	source *Secret, err error) {
	g, ok, err := p.grant(ctx, accounts, of)
	if !ok {
		return nil, nil, err
	}
	all, err = p.provide(ctx, repository, g)
	return all, g.source(), err
}

// key tells grants apart whose answers are not the same.
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

// source is whose credential the answer to a grant is: nil for the node's.
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
