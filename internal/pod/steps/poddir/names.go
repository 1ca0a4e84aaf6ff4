package poddir

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// maxHostname is the length of the longest DNS label.
	maxHostname = validation.DNS1123LabelMaxLength
	// maxKernelHostname is the kernel's __NEW_UTS_LEN.
	maxKernelHostname = 64
)

// PodNames has a pod's host name and its domain, which may be "".
type PodNames struct{ Hostname, Domain string }

// FQDN returns host name and domain, or the host name alone.
func (n PodNames) FQDN() string {
	if n.Domain == "" {
		return n.Hostname
	}
	return n.Hostname + "." + n.Domain
}

// Names decides a pod's host name: hostnameOverride (KEP-4762), else hostname, else the pod's name. A subdomain gives
// it a domain.
func Names(p *corev1.Pod, clusterDomain string) (PodNames, error) {
	if o := p.Spec.HostnameOverride; o != nil {
		if msgs := validation.IsDNS1123Subdomain(*o); len(msgs) > 0 {
			return PodNames{},
				fmt.Errorf("hostnameOverride %q is not a valid DNS subdomain: %s", *o, strings.Join(msgs, "; "))
		}
		if len(*o) > maxKernelHostname {
			return PodNames{},
				fmt.Errorf("hostnameOverride %q is too long (%d characters is the max, %d characters requested)", *o,
					maxKernelHostname, len(*o))
		}
		return PodNames{Hostname: *o}, nil
	}
	n := PodNames{Hostname: p.Name}
	if h := p.Spec.Hostname; h != "" {
		if msgs := validation.IsDNS1123Label(h); len(msgs) > 0 {
			return PodNames{}, fmt.Errorf("hostname %q is not a valid DNS label: %s", h, strings.Join(msgs, "; "))
		}
		n.Hostname = h
	}
	if len(n.Hostname) > maxHostname {
		n.Hostname = strings.TrimRight(n.Hostname[:maxHostname], "-.")
	}
	if n.Hostname == "" {
		return PodNames{}, fmt.Errorf("no host name is left of %q", p.Name)
	}
	if s := p.Spec.Subdomain; s != "" {
		if msgs := validation.IsDNS1123Label(s); len(msgs) > 0 {
			return PodNames{}, fmt.Errorf("subdomain %q is not a valid DNS label: %s", s, strings.Join(msgs, "; "))
		}
		n.Domain = strings.TrimSuffix(s+"."+p.Namespace+".svc."+clusterDomain, ".")
	}
	return n, nil
}

// kernelHostname returns the argument for sethostname(2): the host name, or the FQDN if setHostnameAsFQDN is set.
func kernelHostname(p *corev1.Pod, n PodNames) (string, error) {
	if p.Spec.SetHostnameAsFQDN == nil || !*p.Spec.SetHostnameAsFQDN {
		return n.Hostname, nil
	}
	if fqdn := n.FQDN(); len(fqdn) > maxKernelHostname {
		return "", fmt.Errorf(
			"failed to construct FQDN from pod hostname and cluster domain, FQDN %s is too long (%d characters is "+
				"the max, %d characters requested)",
			fqdn, maxKernelHostname, len(fqdn))
	}
	return n.FQDN(), nil
}
