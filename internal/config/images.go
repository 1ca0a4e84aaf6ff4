package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/distribution/reference"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubelet/config/v1beta1"
)

func readImages(in *input, f Flags) Images {
	kc := in.kc
	i := Images{
		HighThreshold: int(*kc.ImageGCHighThresholdPercent),
		LowThreshold:  int(*kc.ImageGCLowThresholdPercent),
		MinimumAge:    in.Duration("imageMinimumGCAge", kc.ImageMinimumGCAge),
		MaximumAge:    kc.ImageMaximumGCAge.Duration,
		Loaded:        f.Disk.LoadedImages,
		Verification:  kc.ImagePullCredentialsVerificationPolicy,
		Allowlist:     slices.Clone(kc.PreloadedImagesVerificationAllowlist),
		Providers:     f.Providers,
	}
	in.Within("imageGCHighThresholdPercent", int64(i.HighThreshold), 0, 100)
	in.Within("imageGCLowThresholdPercent", int64(i.LowThreshold), 0, 100)
	if i.LowThreshold >= i.HighThreshold {
		in.Invalid("imageGCLowThresholdPercent", i.LowThreshold, "must be less than imageGCHighThresholdPercent, %d",
			i.HighThreshold)
	}
	if i.MaximumAge != 0 && i.MaximumAge <= i.MinimumAge {
		in.Invalid("imageMaximumGCAge", i.MaximumAge.String(),
			"must be more than imageMinimumGCAge, %v, or 0s, which keeps unused images without limit", i.MinimumAge)
	}
	policies := []v1beta1.ImagePullCredentialsVerificationPolicy{v1beta1.NeverVerify,
		v1beta1.NeverVerifyPreloadedImages, v1beta1.NeverVerifyAllowlistedImages, v1beta1.AlwaysVerify}
	if !slices.Contains(policies, i.Verification) {
		in.Add(field.ErrorList{field.NotSupported(field.NewPath("imagePullCredentialsVerificationPolicy"),
			i.Verification, policies)})
	}
	if len(i.Allowlist) > 0 && i.Verification != v1beta1.NeverVerifyAllowlistedImages {
		in.Invalid("preloadedImagesVerificationAllowlist", i.Allowlist,
			"must be left out unless imagePullCredentialsVerificationPolicy is %s",
			v1beta1.NeverVerifyAllowlistedImages)
	}
	for n, pattern := range i.Allowlist {
		named, err := reference.ParseNormalizedNamed(strings.TrimSuffix(pattern, "/*"))
		if err != nil || !reference.IsNameOnly(named) {
			in.Invalid(fmt.Sprintf("preloadedImagesVerificationAllowlist[%d]", n), pattern,
				"must be a repository without tag and digest, or a prefix of repositories that ends in /*")
		}
	}
	return i
}
