package auth

import (
	"encoding/json"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// attributes is an action that needs permission: a verb on a subresource of a node.
type attributes struct{ node, verb, subresource string }

// nodes is the resource that all checked rights apply to.
const nodes = "nodes"

// maxKey is the size limit of a cache key, in bytes. Callers choose parts of the key, such as user names,
// and must not be able to fill the memory.
const maxKey = 10_000

// reviewFor returns the access review for a user and an action, and the key for caching the answer. The key is empty if
// the answer must not be cached.
func reviewFor(who user.Info, want attributes) (authorizationv1.SubjectAccessReviewSpec, string, error) {
	spec := authorizationv1.SubjectAccessReviewSpec{
		User:   who.GetName(),
		UID:    who.GetUID(),
		Groups: who.GetGroups(),
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: want.verb, Version: "v1", Resource: nodes,
			Subresource: want.subresource, Name: want.node,
		},
	}
	for name, values := range who.GetExtra() {
		if spec.Extra == nil {
			spec.Extra = map[string]authorizationv1.ExtraValue{}
		}
		spec.Extra[name] = values
	}
	key, err := json.Marshal(spec) // maps are sorted
	if err != nil || len(key) > maxKey {
		return spec, "", err
	}
	return spec, string(key), nil
}
