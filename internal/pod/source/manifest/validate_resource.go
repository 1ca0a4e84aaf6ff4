package manifest

import (
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checkResources checks requests and limits of a container or a pod.
func checkResources(c *check, r *corev1.ResourceRequirements, at *field.Path) {
	checkAmounts(c, r.Limits, at.Child("limits"))
	checkAmounts(c, r.Requests, at.Child("requests"))
	for _, name := range sorted(r.Requests) {
		request := r.Requests[name]
		limit, limited := r.Limits[name]
		at := at.Child("requests").Key(string(name))
		switch {
		case limited && request.Cmp(limit) > 0:
			c.invalid(at, request.String(), "must be at most the limit, %s", limit.String())
		case !overcommit(name) && (!limited || request.Cmp(limit) != 0):
			c.invalid(at, request.String(), "must be the same as the limit: %s cannot be promised to more than one",
				name)
		}
	}
}

func checkAmounts(c *check, list corev1.ResourceList, at *field.Path) {
	for _, name := range sorted(list) {
		q, at := list[name], at.Key(string(name))
		if !native(name) {
			if !strings.Contains(string(name), "/") {
				c.invalid(at, name,
					"must be cpu, memory, ephemeral-storage, hugepages-<size> or a name with a domain such as "+
						"example.com/gpu")
			} else {
				c.rules(at, name, validation.IsQualifiedName(string(name)))
			}
			if q.MilliValue()%1000 != 0 {
				c.invalid(at, q.String(), "must be a whole number")
			}
		}
		if q.Sign() < 0 {
			c.invalid(at, q.String(), "must not be negative")
		}
	}
}

func native(name corev1.ResourceName) bool {
	return overcommit(name) || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// overcommit reports whether containers may request less than their limit.
func overcommit(name corev1.ResourceName) bool {
	return name == corev1.ResourceCPU || name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage
}

// sorted returns the names in order, so that messages have a fixed order.
func sorted(list corev1.ResourceList) []corev1.ResourceName {
	names := make([]corev1.ResourceName, 0, len(list))
	for name := range list {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func checkPodSecurity(c *check, s *corev1.PodSecurityContext, at *field.Path) {
	if s == nil {
		return
	}
	checkIDs(c, at, s.RunAsUser, s.RunAsGroup)
	c.id(at.Child("fsGroup"), s.FSGroup)
	for i := range s.SupplementalGroups {
		c.id(at.Child("supplementalGroups").Index(i), &s.SupplementalGroups[i])
	}
	if s.SupplementalGroupsPolicy != nil {
		oneOf(c, at.Child("supplementalGroupsPolicy"), *s.SupplementalGroupsPolicy,
			corev1.SupplementalGroupsPolicyMerge, corev1.SupplementalGroupsPolicyStrict)
	}
	if s.FSGroupChangePolicy != nil {
		oneOf(c, at.Child("fsGroupChangePolicy"), *s.FSGroupChangePolicy, corev1.FSGroupChangeOnRootMismatch,
			corev1.FSGroupChangeAlways)
	}
	checkSeccomp(c, s.SeccompProfile, at.Child("seccompProfile"))
	checkAppArmor(c, s.AppArmorProfile, at.Child("appArmorProfile"))
	names := map[string]bool{}
	for i, sysctl := range s.Sysctls {
		at := at.Child("sysctls").Index(i).Child("name")
		c.text(at, sysctl.Name, isSysctl)
		name := strings.ReplaceAll(sysctl.Name, "/", ".")
		if names[name] {
			c.add(field.Duplicate(at, sysctl.Name))
		}
		names[name] = true
		if c.pod.Spec.HostNetwork && strings.HasPrefix(name, "net.") {
			c.invalid(at, sysctl.Name, "may not be set on the host network")
		}
	}
}

// isSysctl requires a name such as net.core.somaxconn. Both separators, '.' and '/', are allowed.
func isSysctl(name string) []string {
	for part := range strings.SplitSeq(strings.ReplaceAll(name, "/", "."), ".") {
		if part == "" || strings.Trim(part, "abcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
			return []string{"must be names of lower case letters, digits, '-' and '_', separated by '.' or '/'"}
		}
	}
	return nil
}

func checkContainerSecurity(c *check, s *corev1.SecurityContext, at *field.Path) {
	if s == nil {
		return
	}
	checkIDs(c, at, s.RunAsUser, s.RunAsGroup)
	checkSeccomp(c, s.SeccompProfile, at.Child("seccompProfile"))
	checkAppArmor(c, s.AppArmorProfile, at.Child("appArmorProfile"))
	if s.ProcMount != nil {
		oneOf(c, at.Child("procMount"), *s.ProcMount, corev1.DefaultProcMount, corev1.UnmaskedProcMount)
		if *s.ProcMount == corev1.UnmaskedProcMount && (c.pod.Spec.HostUsers == nil || *c.pod.Spec.HostUsers) {
			c.invalid(at.Child("procMount"), *s.ProcMount, "needs hostUsers: false")
		}
	}
	if s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation {
		return
	}
	if s.Privileged != nil && *s.Privileged {
		c.invalid(at.Child("allowPrivilegeEscalation"), false, "cannot be false for a privileged container")
	}
	if s.Capabilities != nil &&
		slices.ContainsFunc(s.Capabilities.Add, func(name corev1.Capability) bool {
			return name == "CAP_SYS_ADMIN" || name == "SYS_ADMIN"
		}) {
		c.invalid(at.Child("allowPrivilegeEscalation"), false, "cannot be false with the capability SYS_ADMIN")
	}
}

func checkIDs(c *check, at *field.Path, user, group *int64) {
	c.id(at.Child("runAsUser"), user)
	c.id(at.Child("runAsGroup"), group)
}

// id requires a number that the kernel accepts as a user or group in a pod.
func (c *check) id(at *field.Path, id *int64) {
	if id != nil {
		c.within(at, *id, 0, math.MaxInt32)
	}
}

func checkSeccomp(c *check, p *corev1.SeccompProfile, at *field.Path) {
	if p == nil {
		return
	}
	oneOf(c, at.Child("type"), p.Type, corev1.SeccompProfileTypeLocalhost, corev1.SeccompProfileTypeRuntimeDefault,
		corev1.SeccompProfileTypeUnconfined)
	checkLocalhost(c, p.LocalhostProfile, p.Type == corev1.SeccompProfileTypeLocalhost, at)
	if p.LocalhostProfile != nil {
		c.relative(at.Child("localhostProfile"), *p.LocalhostProfile)
	}
}

func checkAppArmor(c *check, p *corev1.AppArmorProfile, at *field.Path) {
	if p == nil {
		return
	}
	oneOf(c, at.Child("type"), p.Type, corev1.AppArmorProfileTypeLocalhost, corev1.AppArmorProfileTypeRuntimeDefault,
		corev1.AppArmorProfileTypeUnconfined)
	checkLocalhost(c, p.LocalhostProfile, p.Type == corev1.AppArmorProfileTypeLocalhost, at)
}

// checkLocalhost requires the name of a profile if and only if the type is Localhost.
func checkLocalhost(c *check, profile *string, wanted bool, at *field.Path) {
	at = at.Child("localhostProfile")
	switch {
	case wanted && (profile == nil || *profile == ""):
		c.add(field.Required(at, "type Localhost needs one"))
	case !wanted && profile != nil:
		c.invalid(at, *profile, "can only be set with type Localhost")
	}
}
