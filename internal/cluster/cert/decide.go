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

// action is what is to be done about a certificate, at once or at a time.
type action struct {
	// Request asks for a new one.
	Request bool
	// At is when to look again without a request; zero: when a file changes.
	At time.Time
}

// subject says what a certificate has to have and when it is renewed.
type subject struct {
	// Template is what is asked for; nil: nothing can be asked for now.
	Template *x509.CertificateRequest
	// Life is the part of its life after which a certificate is renewed. It begins
	// with Taken where that is known: signers date certificates back, by more than
	// a short one's life.
	Life  float64
	Taken time.Time
	// Rotate renews before it expires. Without it one is asked for only when there
	// is none that is of use.
	Rotate bool
	// First asks for another one although the present one is good: it is not the
	// node's own.
	First bool
}

// lookAgain is how often files are read while the certificate is of no use,
// whatever watching them says.
const lookAgain = 10 * time.Second

// next is what to do about the present certificate, nil for none.
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

// recheck is when a certificate that nothing can be asked for is looked at again.
func recheck(leaf *x509.Certificate, now time.Time) time.Time {
	if leaf == nil || !now.Before(leaf.NotAfter) {
		return now.Add(lookAgain)
	}
	return leaf.NotAfter
}

// renewAt is after that part of a certificate's life.
func renewAt(leaf *x509.Certificate, s subject) time.Time {
	from := leaf.NotBefore
	if s.Taken.After(from) {
		from = s.Taken
	}
	return from.Add(time.Duration(float64(leaf.NotAfter.Sub(from)) * s.Life))
}

// covers says that a certificate has what is asked for; it may have more.
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

// best is the first pair that has not expired, else the one that expired last.
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

// nodeRequest is a node's part of every certificate: user system:node:NAME in the
// group system:nodes.
func nodeRequest(node string) *x509.CertificateRequest {
	return &x509.CertificateRequest{Subject: pkix.Name{CommonName: "system:node:" + node,
		Organization: []string{"system:nodes"}}}
}

// servingRequest is nil until the node has an IP address, as the approvers of
// such requests want one.
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
