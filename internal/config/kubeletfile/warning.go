package kubeletfile

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"
)

// Warning names a valid setting that has no effect or another effect than in the kubelet. The caller shows it to the
// user.
type Warning struct {
	// Origin is the file that contains the setting.
	Origin string
	// Field is the setting's path, such as logging.format. It is empty if the warning is about the whole file.
	Field string
	Text  string
}

func (w Warning) String() string {
	parts := make([]string, 0, 3)
	for _, part := range []string{w.Origin, w.Field, w.Text} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, ": ")
}

// Warnings returns a Warning for every set field that has no effect, or less effect than in the kubelet.
func Warnings(kc *v1beta1.KubeletConfiguration, origin map[string]string, joined, https bool) []Warning {
	var all []Warning
	some, none := limited(), map[string]string{}
	reasons := []map[string][]string{withoutEffect()}
	if !joined {
		reasons = append(reasons, standalone())
		maps.Copy(some, limitedStandalone())
	}
	if !https {
		reasons = append(reasons, withoutServer())
	}
	for _, paths := range reasons {
		for text, paths := range paths {
			for _, path := range paths {
				none[path] = text
			}
		}
	}
	for _, path := range slices.Sorted(maps.Keys(origin)) {
		if path == "featureGates" {
			for _, gate := range slices.Sorted(maps.Keys(kc.FeatureGates)) {
				if text := gateWarning(gate); text != "" {
					all = append(all, Warning{Origin: origin[path], Field: "featureGates." + gate, Text: text})
				}
			}
			continue
		}
		if text, ok := some[path]; ok {
			all = append(all, Warning{Origin: origin[path], Field: path, Text: text})
		}
		if text, ok := none[path]; ok {
			all = append(all, Warning{Origin: origin[path], Field: path, Text: "has no effect: " + text})
		}
	}
	if len(kc.ReservedMemory) > 0 && kc.MemoryManagerPolicy != "Static" {
		all = append(all,
			Warning{Origin: origin["reservedMemory"], Field: "reservedMemory",
				Text: "reserves nothing unless memoryManagerPolicy is Static"})
	}
	all = append(all, weakTLS(kc, origin)...)
	if t := kc.Tracing; t != nil && ptr.Deref(t.SamplingRatePerMillion, 0) == 0 {
		all = append(all, Warning{
			Origin: cmp.Or(origin["tracing.endpoint"], origin["tracing.samplingRatePerMillion"]),
			Field:  "tracing.samplingRatePerMillion",
			Text:   "is 0: no trace is exported; 1000000 exports all",
		})
	}
	return all
}

// weakTLS warns of valid settings that are insecure or have no effect.
func weakTLS(kc *v1beta1.KubeletConfiguration, origin map[string]string) []Warning {
	var all []Warning
	for _, name := range kc.TLSCipherSuites {
		if slices.Contains(cliflag.InsecureTLSCipherNames(), name) {
			all = append(all,
				Warning{Origin: origin["tlsCipherSuites"], Field: "tlsCipherSuites", Text: name + " is insecure"})
		}
	}
	if len(kc.TLSCipherSuites) > 0 && kc.TLSMinVersion == "VersionTLS13" {
		all = append(all,
			Warning{Origin: origin["tlsCipherSuites"], Field: "tlsCipherSuites",
				Text: "has no effect: the cipher suites of TLS 1.3 cannot be configured"})
	}
	return all
}
