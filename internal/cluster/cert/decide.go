package cert

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// action is the next action for a certificate.
type action struct {
	// Request means to request a new certificate now.
	Request bool
	// At is the time of the next check without a request. Zero stands for the next change of a file.
	At time.Time
}

// subject describes the wanted certificate and when it is renewed.
type subject struct {
	// Template is the request. nil means that no request is possible now.
	Template *x509.CertificateRequest
	// Life is the fraction of its life after which a certificate is renewed. The life begins with Taken if that is
	// known, because signers date certificates back, by more than the life of a short one.
	Life  float64
	Taken time.Time
	// Rotate renews the certificate before it expires. Without it, a certificate is requested only if there is no
	// usable one.
	Rotate bool
	// First requests another certificate although the current one is valid, because the current one is not the node's
	// own.
	First bool
}

// recheckInterval is how often the files are read while there is no usable certificate, even if no change of a file
// was noticed.
const recheckInterval = 10 * time.Second

// next returns the action for the current certificate, which is nil if there is none.
func next(leaf *x509.Certificate, s subject, now time.Time) action {
	switch {
	case s.Template == nil:
		return action{At: recheck(leaf, now)}
	case leaf == nil || !now.Before(leaf.NotAfter) || s.First || !covers(leaf, s.Template):
		return action{Request: true}
	case !s.Rotate:
		return action{At: leaf.NotAfter}
	}
	if due := renewAt(leaf, s); now.Before(due) {
		return action{At: due}
	}
	return action{Request: true}
}

// recheck returns when to check a certificate again if no request is possible.
func recheck(leaf *x509.Certificate, now time.Time) time.Time {
	if leaf == nil || !now.Before(leaf.NotAfter) {
		return now.Add(recheckInterval)
	}
	return leaf.NotAfter
}

// renewAt returns the time after the fraction s.Life of a certificate's life.
func renewAt(leaf *x509.Certificate, s subject) time.Time {
	from := leaf.NotBefore
	if s.Taken.After(from) {
		from = s.Taken
	}
	return from.Add(time.Duration(float64(leaf.NotAfter.Sub(from)) * s.Life))
}

// covers reports whether a certificate has all names of the request. It may have more.
func covers(leaf *x509.Certificate, t *x509.CertificateRequest) bool {
	for _, name := range t.DNSNames {
		if !slices.Contains(leaf.DNSNames, name) {
			return false
		}
	}
	for _, ip := range t.IPAddresses {
		if !slices.ContainsFunc(leaf.IPAddresses, ip.Equal) {
			return false
		}
	}
	return t.Subject.CommonName == "" || leaf.Subject.CommonName == t.Subject.CommonName
}

// best returns the first pair that has not expired, or else the pair that expired last.
func best(pairs []*tls.Certificate, now time.Time) *tls.Certificate {
	var last *tls.Certificate
	for _, p := range pairs {
		if now.Before(p.Leaf.NotAfter) {
			return p
		}
		if last == nil || p.Leaf.NotAfter.After(last.Leaf.NotAfter) {
			last = p
		}
	}
	return last
}

// nodeRequest returns the node's part of every request: user system:node:NAME in the group system:nodes.
func nodeRequest(node string) *x509.CertificateRequest {
	return &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:" + node,
		Organization: []string{"system:nodes"}}}
}

// servingRequest returns nil until the node has an IP address, because the approvers of such requests require one.
func servingRequest(node string, addresses []corev1.NodeAddress) *x509.CertificateRequest {
	r := nodeRequest(node)
	for _, a := range addresses {
		ip, err := netip.ParseAddr(a.Address)
		switch {
		case a.Address == "":
		case err == nil:
			r.IPAddresses = append(r.IPAddresses, net.IP(ip.Unmap().AsSlice()))
		case a.Type == corev1.NodeHostName || a.Type == corev1.NodeInternalDNS || a.Type == corev1.NodeExternalDNS:
			r.DNSNames = append(r.DNSNames, a.Address)
		}
	}
	if len(r.IPAddresses) == 0 {
		return nil
	}
	slices.Sort(r.DNSNames)
	r.DNSNames = slices.Compact(r.DNSNames)
	slices.SortFunc(r.IPAddresses, func(a, b net.IP) int { return slices.Compare(a.To16(), b.To16()) })
	r.IPAddresses = slices.CompactFunc(r.IPAddresses, net.IP.Equal)
	return r
}
