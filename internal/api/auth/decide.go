package auth

import (
	"encoding/json"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// attributes are what is asked to be allowed: a verb on a subresource of a node.
type attributes struct{ node, verb, subresource string }

// nodes is the resource that all rights are about.
const nodes = "nodes"

// maxKey is the longest question whose answer is kept, in bytes: what callers
// choose, such as their names, must not fill the memory.
const maxKey = 10_000

// question is what the API server is asked about a user, and the key under
// which its answer is kept; empty when it is not.
func question(who user.Info, want attributes) (authorizationv1.SubjectAccessReviewSpec, string, error) {
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
