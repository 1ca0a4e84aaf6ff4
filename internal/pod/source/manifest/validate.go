package manifest

import (
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Limits of the API server for a pod's DNS settings.
const (
	maxNameservers = 3
	maxSearches    = 32
	maxSearchChars = 2048
)

// Validate returns the faults that make the API server refuse a pod, with the path of each field. It returns nil for a
// valid pod. The pod must have its name, namespace and defaults.
//
// It checks the fields that this node uses. Fields that only a scheduler or a cluster reads (affinity, topology spread,
// claims) are not checked.
func Validate(pod *corev1.Pod) field.ErrorList {
	c := &check{pod: pod}
	checkMetadata(c, field.NewPath("metadata"))
	spec := field.NewPath("spec")
	checkPolicies(c, spec)
	checkNamespaces(c, spec)
	checkDNS(c, spec)
	checkTolerations(c, spec.Child("tolerations"))
	checkPodSecurity(c, pod.Spec.SecurityContext, spec.Child("securityContext"))
	if pod.Spec.Resources != nil {
		checkResources(c, pod.Spec.Resources, spec.Child("resources"))
	}
	checkVolumes(c, spec.Child("volumes"))
	checkContainers(c, spec)
	return c.errs
}

// check collects the errors of one pod.
type check struct {
	pod  *corev1.Pod
	errs field.ErrorList
}

func (c *check) add(errs ...*field.Error) { c.errs = append(c.errs, errs...) }

func (c *check) invalid(path *field.Path, value any, format string, args ...any) {
	c.add(field.Invalid(path, value, fmt.Sprintf(format, args...)))
}

// rules adds an error for each message of a rule of k8s.io/apimachinery.
func (c *check) rules(path *field.Path, value any, messages []string) {
	for _, m := range messages {
		c.add(field.Invalid(path, value, m))
	}
}

// text requires a value that is not empty and satisfies rule.
func (c *check) text(path *field.Path, value string, rule func(string) []string) {
	if value == "" {
		c.add(field.Required(path, ""))
		return
	}
	c.rules(path, value, rule(value))
}

// optional requires that a value satisfies rule if it is not empty.
func (c *check) optional(path *field.Path, value string, rule func(string) []string) {
	if value != "" {
		c.rules(path, value, rule(value))
	}
}

func (c *check) within(path *field.Path, value, low, high int64) {
	if value < low || value > high {
		if high == math.MaxInt64 {
			c.invalid(path, value, "must be at least %d", low)
			return
		}
		c.invalid(path, value, "must be between %d and %d, inclusive", low, high)
	}
}

// oneOf requires one of the allowed values.
func oneOf[T ~string](c *check, path *field.Path, value T, allowed ...T) {
	if !slices.Contains(allowed, value) {
		c.add(field.NotSupported(path, value, allowed))
	}
}

func checkMetadata(c *check, path *field.Path) {
	m := &c.pod.ObjectMeta
	if m.Name == "" && m.GenerateName != "" {
		c.add(field.Required(path.Child("name"), "generateName is not supported, give the pod a name"))
	} else {
		c.text(path.Child("name"), m.Name, validation.IsDNS1123Subdomain)
	}
	c.text(path.Child("namespace"), m.Namespace, validation.IsDNS1123Label)
	c.optional(path.Child("uid"), string(m.UID), isUID)
	c.add(metavalidation.ValidateLabels(m.Labels, path.Child("labels"))...)
	c.add(apivalidation.ValidateAnnotations(m.Annotations, path.Child("annotations"))...)
}

// isUID requires a UID that can be a name of directories and cgroups.
func isUID(uid string) []string {
	ok := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-'
	}
	if len(uid) > validation.DNS1123LabelMaxLength || strings.ContainsFunc(uid, func(r rune) bool { return !ok(r) }) {
		return []string{fmt.Sprintf("must be at most %d letters, digits and '-'", validation.DNS1123LabelMaxLength)}
	}
	return nil
}

func checkPolicies(c *check, path *field.Path) {
	s := &c.pod.Spec
	oneOf(c, path.Child("restartPolicy"), s.RestartPolicy, corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure,
		corev1.RestartPolicyNever)
	if s.TerminationGracePeriodSeconds != nil {
		c.within(path.Child("terminationGracePeriodSeconds"), *s.TerminationGracePeriodSeconds, 0, math.MaxInt32)
	}
	if s.ActiveDeadlineSeconds != nil {
		c.within(path.Child("activeDeadlineSeconds"), *s.ActiveDeadlineSeconds, 1, math.MaxInt32)
	}
	if s.OS != nil {
		oneOf(c, path.Child("os", "name"), s.OS.Name, corev1.Linux, corev1.Windows)
	}
	c.add(metavalidation.ValidateLabels(s.NodeSelector, path.Child("nodeSelector"))...)
	c.optional(path.Child("serviceAccountName"), s.ServiceAccountName, validation.IsDNS1123Subdomain)
	c.optional(path.Child("priorityClassName"), s.PriorityClassName, validation.IsDNS1123Subdomain)
	if s.RuntimeClassName != nil {
		c.text(path.Child("runtimeClassName"), *s.RuntimeClassName, validation.IsDNS1123Subdomain)
	}
	for i, secret := range s.ImagePullSecrets {
		c.text(path.Child("imagePullSecrets").Index(i).Child("name"), secret.Name, validation.IsDNS1123Subdomain)
	}
	for i, gate := range s.ReadinessGates {
		c.text(path.Child("readinessGates").Index(i).Child("conditionType"), string(gate.ConditionType),
			validation.IsQualifiedName)
	}
	if len(s.SchedulingGates) > 0 {
		c.add(field.Forbidden(path.Child("schedulingGates"), "the pod is already placed on its node"))
	}
}

// checkNamespaces checks which namespaces a pod may share with its host.
func checkNamespaces(c *check, path *field.Path) {
	s := &c.pod.Spec
	if s.HostPID && s.ShareProcessNamespace != nil && *s.ShareProcessNamespace {
		c.invalid(path.Child("shareProcessNamespace"), true, "cannot be set together with hostPID")
	}
	if s.HostUsers == nil || *s.HostUsers {
		return
	}
	for _, shared := range []struct {
		name string
		on   bool
	}{{"hostNetwork", s.HostNetwork}, {"hostPID", s.HostPID}, {"hostIPC", s.HostIPC}} {
		if shared.on {
			c.add(field.Forbidden(path.Child(shared.name), "cannot be set together with hostUsers: false"))
		}
	}
}

func checkDNS(c *check, path *field.Path) {
	s := &c.pod.Spec
	c.optional(path.Child("hostname"), s.Hostname, validation.IsDNS1123Label)
	c.optional(path.Child("subdomain"), s.Subdomain, validation.IsDNS1123Label)
	if name := s.HostnameOverride; name != nil {
		c.text(path.Child("hostnameOverride"), *name, validation.IsDNS1123Subdomain)
		if s.HostNetwork {
			c.add(field.Forbidden(path.Child("hostnameOverride"), "cannot be set together with hostNetwork"))
		}
		if s.SetHostnameAsFQDN != nil && *s.SetHostnameAsFQDN {
			c.add(field.Forbidden(path.Child("hostnameOverride"), "cannot be set together with setHostnameAsFQDN"))
		}
	}
	for i, alias := range s.HostAliases {
		at := path.Child("hostAliases").Index(i)
		c.add(validation.IsValidIP(at.Child("ip"), alias.IP)...)
		for j, name := range alias.Hostnames {
			c.text(at.Child("hostnames").Index(j), name, validation.IsDNS1123Subdomain)
		}
	}
	oneOf(c, path.Child("dnsPolicy"), s.DNSPolicy, corev1.DNSClusterFirst, corev1.DNSClusterFirstWithHostNet,
		corev1.DNSDefault, corev1.DNSNone)
	if s.DNSPolicy == corev1.DNSNone && (s.DNSConfig == nil || len(s.DNSConfig.Nameservers) == 0) {
		c.add(field.Required(path.Child("dnsConfig", "nameservers"), "dnsPolicy None needs at least one"))
	}
	if s.DNSConfig != nil {
		checkDNSConfig(c, s.DNSConfig, path.Child("dnsConfig"))
	}
}

func checkDNSConfig(c *check, d *corev1.PodDNSConfig, path *field.Path) {
	if len(d.Nameservers) > maxNameservers {
		c.add(field.TooMany(path.Child("nameservers"), len(d.Nameservers), maxNameservers))
	}
	for i, ip := range d.Nameservers {
		c.add(validation.IsValidIP(path.Child("nameservers").Index(i), ip)...)
	}
	if len(d.Searches) > maxSearches {
		c.add(field.TooMany(path.Child("searches"), len(d.Searches), maxSearches))
	}
	if chars := len(strings.Join(d.Searches, " ")); chars > maxSearchChars {
		c.invalid(path.Child("searches"), d.Searches, "must be at most %d characters together, are %d", maxSearchChars,
			chars)
	}
	for i, search := range d.Searches {
		if search != "." {
			c.text(path.Child("searches").Index(i), strings.TrimSuffix(search, "."),
				validation.IsDNS1123SubdomainWithUnderscore)
		}
	}
	for i, option := range d.Options {
		if option.Name == "" {
			c.add(field.Required(path.Child("options").Index(i).Child("name"), ""))
		}
	}
}

func checkTolerations(c *check, path *field.Path) {
	for i, t := range c.pod.Spec.Tolerations {
		at := path.Index(i)
		c.optional(at.Child("key"), t.Key, validation.IsQualifiedName)
		switch t.Operator {
		case corev1.TolerationOpExists:
			if t.Value != "" {
				c.invalid(at.Child("value"), t.Value, "must be empty when operator is Exists")
			}
		case corev1.TolerationOpEqual, "":
			c.rules(at.Child("value"), t.Value, validation.IsValidLabelValue(t.Value))
			if t.Key == "" {
				c.invalid(at.Child("operator"), t.Operator, "must be Exists when key is empty, which means every key")
			}
		default:
			c.add(field.NotSupported(at.Child("operator"), t.Operator,
				[]corev1.TolerationOperator{corev1.TolerationOpEqual, corev1.TolerationOpExists}))
		}
		oneOf(c, at.Child("effect"), t.Effect, "", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule,
			corev1.TaintEffectNoExecute)
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			c.invalid(at.Child("effect"), t.Effect, "must be NoExecute when tolerationSeconds is set")
		}
	}
}
