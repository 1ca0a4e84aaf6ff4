package record

import (
	"slices"
	"strings"

	"github.com/distribution/reference"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/berth-run/berth/internal/pod/steps/image/credential"
)

// Policy decides which images only pods with access to their repository may use.
type Policy struct {
	// Verification is imagePullCredentialsVerificationPolicy.
	Verification v1beta1.ImagePullCredentialsVerificationPolicy
	// Allowlist is preloadedImagesVerificationAllowlist: repositories, or prefixes of repositories that end in /*.
	Allowlist []string
}

// Pulled is the record of one image.
type Pulled struct {
	// Repositories has the repositories it was pulled from, without tag and digest.
	Repositories map[string]Access `json:"repositories,omitempty"`
}

// Access records which pods may use an image of a repository.
type Access struct {
	// Node is set if every pod may use it: it was pulled without credentials, or with the node's.
	Node    bool                `json:"node,omitempty"`
	Secrets []credential.Secret `json:"secrets,omitempty"`
}

// verify reports whether the policy requires verification for an image of a repository. ours is set if this agent
// pulled the image.
func (p Policy) verify(repository string, ours bool) bool {
	switch p.Verification {
	case v1beta1.NeverVerify:
		return false
	case v1beta1.NeverVerifyPreloadedImages:
		return ours
	case v1beta1.NeverVerifyAllowlistedImages:
		return ours ||
			!slices.ContainsFunc(p.Allowlist, func(pattern string) bool { return allows(pattern, repository) })
	case v1beta1.AlwaysVerify:
	}
	return true
}

// allows reports whether a pattern of the allowlist matches a repository.
func allows(pattern, repository string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "/*"); ok {
		return strings.HasPrefix(repository, canonical(prefix)+"/") || strings.HasPrefix(repository, prefix+"/")
	}
	return canonical(pattern) == repository
}

// canonical returns the full name of a repository that is written in short form.
func canonical(repository string) string {
	named, err := reference.ParseNormalizedNamed(repository)
	if err != nil {
		return repository
	}
	return named.Name()
}

// decide reports whether a pod with these secrets, all of them for the repository, may use an image without pulling it.
// It may if a recorded secret has the same name, even with changed content, or the same content under another name.
// learn is the record to add, or nil.
func decide(p Policy, repository string, known *Pulled, ours bool, have []credential.Secret) (allowed bool,
	learn *credential.Secret) {
	if !p.verify(repository, ours) {
		return true, nil
	}
	if known == nil {
		return false, nil
	}
	access := known.Repositories[repository]
	if access.Node {
		return true, nil
	}
	for _, s := range have {
		for _, seen := range access.Secrets {
			sameHash := s.Hash != "" && s.Hash == seen.Hash
			sameName := s.UID == seen.UID && s.Namespace == seen.Namespace && s.Name == seen.Name
			switch {
			case sameHash && sameName:
				return true, nil
			case sameHash || sameName:
				return true, &s
			}
		}
	}
	return false, nil
}

// with returns the record with one more credential that had access. nil stands for a credential of the node, or none.
func (k Pulled) with(repository string, s *credential.Secret) Pulled {
	all := map[string]Access{}
	for name, access := range k.Repositories {
		all[name] = access
	}
	access := all[repository]
	if s == nil || access.Node {
		all[repository] = Access{Node: true}
		return Pulled{all}
	}
	secrets := slices.DeleteFunc(slices.Clone(access.Secrets), func(old credential.Secret) bool {
		return old.UID == s.UID && old.Namespace == s.Namespace && old.Name == s.Name
	})
	all[repository] = Access{Secrets: append(secrets, *s)}
	return Pulled{all}
}
