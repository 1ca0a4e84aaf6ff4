package podcert

import (
	"encoding/pem"
	"fmt"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"

	"github.com/berth-run/berth/internal/base/clock"
	"github.com/berth-run/berth/internal/base/reason"
)

// Times of the kubelet.
const (
	// abandonAfter, with jitter, is how long a request that the API server does not list may still appear. After that
	// it counts as deleted, and the agent creates another one.
	abandonAfter = 10 * time.Minute
	// overdueAfter is how long after the begin of the refresh a certificate counts as overdue.
	overdueAfter = 10 * time.Minute
	// maxJitter spreads the requests of pods that were issued certificates at the same time.
	maxJitter = 5 * time.Minute
)

// Delays between tries to create a request.
const (
	retryFirst = 100 * time.Millisecond
	retryMax   = 5 * time.Minute
)

// state is the progress of one source of a volume.
type state struct {
	current *credential // nil before the first certificate
	pending *request    // nil if no request waits for its signer
	refused *refusal    // nil unless the signer refused; final
	// overdue and expired are set when the event of that kind was recorded for the current certificate.
	overdue, expired bool
}

// credential is a private key with its certificate chain, both in PEM.
type credential struct {
	key, chain []byte
	// refresh is when to request the next certificate, expires when this one ends. Both are times of the API server.
	refresh, expires time.Time
}

// request is a PodCertificateRequest that this agent created.
type request struct {
	name string
	key  []byte // the private key, in PEM
	// abandon is when the request counts as deleted if the API server does not list it.
	abandon time.Time
}

// refusal is a signer's final answer.
type refusal struct{ condition, reason, message string }

func (r *refusal) Error() string {
	word := "denied"
	if r.condition == certificatesv1beta1.PodCertificateRequestConditionTypeFailed {
		word = "failed"
	}
	return fmt.Sprintf("PodCertificateRequest was permanently %s: reason=%q message=%q", word, r.reason, r.message)
}

// notice is a warning event of a pod.
type notice struct{ reason, message string }

// look returns the state after a look at the pending request. found is nil if the API server does not list it.
// namespace is the pod's, for events. jitter delays the next refresh.
func (s state) look(found *certificatesv1beta1.PodCertificateRequest, namespace string, now time.Time,
	jitter time.Duration) (next state, notices []notice) {
	switch {
	case s.pending == nil:
	case found == nil && clock.Passed(s.pending.abandon, now):
		s.pending = nil
	case found != nil:
		s, notices = s.answered(found, namespace, jitter)
	}
	return s.late(now, notices)
}

// answered returns the state after the signer's answer, if there is one.
func (s state) answered(found *certificatesv1beta1.PodCertificateRequest, namespace string,
	jitter time.Duration) (next state, notices []notice) {
	status := found.Status
	for _, c := range status.Conditions {
		switch c.Type {
		case certificatesv1beta1.PodCertificateRequestConditionTypeIssued:
			if status.BeginRefreshAt == nil || status.NotAfter == nil {
				continue // the API server accepts no such status
			}
			return state{current: &credential{key: s.pending.key, chain: certificates(status.CertificateChain),
				refresh: status.BeginRefreshAt.Add(jitter), expires: status.NotAfter.Time}}, nil
		case certificatesv1beta1.PodCertificateRequestConditionTypeDenied:
			notices = []notice{{reason.CertificateDenied, fmt.Sprintf("PodCertificateRequest %s/%s was denied, "+
				"reason=%q, message=%q", namespace, found.Name, c.Reason, c.Message)}}
		case certificatesv1beta1.PodCertificateRequestConditionTypeFailed:
			notices = []notice{{reason.Failed, fmt.Sprintf("PodCertificateRequest %s/%s failed, reason=%q, message=%q",
				namespace, found.Name, c.Reason, c.Message)}}
		default:
			continue
		}
		return state{refused: &refusal{c.Type, c.Reason, c.Message}}, notices
	}
	return s, nil
}

// late adds the events of a certificate that should have been replaced by now.
func (s state) late(now time.Time, notices []notice) (next state, all []notice) {
	if s.current == nil {
		return s, notices
	}
	if !s.overdue && clock.Passed(s.current.refresh.Add(overdueAfter), now) {
		s.overdue = true
		notices = append(notices, notice{reason.CertificateOverdue, "PodCertificate refresh overdue"})
	}
	if !s.expired && clock.Passed(s.current.expires, now) {
		s.expired = true
		notices = append(notices, notice{reason.CertificateExpired, "PodCertificate expired"})
	}
	return s, notices
}

// wants reports whether another request must be created.
func (s state) wants(now time.Time) bool {
	return s.refused == nil && s.pending == nil && (s.current == nil || clock.Passed(s.current.refresh, now))
}

// due returns when the state next changes without an answer; zero is never.
func (s state) due() time.Time {
	var next time.Time
	sooner := func(at time.Time) {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	if s.pending != nil {
		sooner(s.pending.abandon)
	}
	if s.current == nil {
		return next
	}
	if s.pending == nil {
		sooner(s.current.refresh)
	}
	if !s.overdue {
		sooner(s.current.refresh.Add(overdueAfter))
	}
	if !s.expired {
		sooner(s.current.expires)
	}
	return next
}

// word returns the value of the label state of the kubelet's metric.
func (s state) word(now time.Time) string {
	switch {
	case s.refused != nil && s.refused.condition == certificatesv1beta1.PodCertificateRequestConditionTypeDenied:
		return "denied"
	case s.refused != nil:
		return "failed"
	case s.current == nil:
		return "not_yet_issued"
	case now.After(s.current.expires):
		return "expired"
	case now.After(s.current.refresh.Add(overdueAfter)):
		return "overdue_for_refresh"
	}
	return "fresh"
}

// certificates returns the certificates of a chain without headers and without text between them.
func certificates(chain string) (clean []byte) {
	for rest := []byte(chain); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return clean
		}
		clean = append(clean, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: block.Bytes})...)
	}
}
