package podcert

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type pcr = certificatesv1beta1.PodCertificateRequest

func minutes(n int) time.Duration { return time.Duration(n) * time.Minute }

func answer(condition, reason, message string) *pcr {
	status := certificatesv1beta1.PodCertificateRequestStatus{
		Conditions: []metav1.Condition{{Type: condition, Reason: reason, Message: message}}}
	return &pcr{ObjectMeta: metav1.ObjectMeta{Name: "req-1"}, Status: status}
}

func TestLook(t *testing.T) {
	began := time.Unix(0, 0).UTC()
	at := func(n int) time.Time { return began.Add(minutes(n)) }
	asked := func() *request { return &request{name: "req-1", key: []byte("new"), abandon: at(12)} }
	old := &credential{key: []byte("old"), refresh: at(30), expires: at(60)}
	issued := answer("Issued", "Signed", "")
	issued.Status.BeginRefreshAt, issued.Status.NotAfter = new(metav1.NewTime(at(90))), new(metav1.NewTime(at(120)))
	issued.Status.CertificateChain = "text\n-----BEGIN CERTIFICATE-----\nh: v\n\neA==\n-----END CERTIFICATE-----\n" +
		"more\n-----BEGIN CERTIFICATE-----\neQ==\n-----END CERTIFICATE-----\n"
	fresh := &credential{key: []byte("new"), refresh: at(93), expires: at(120),
		chain: []byte("-----BEGIN CERTIFICATE-----\neA==\n-----END CERTIFICATE-----\n" +
			"-----BEGIN CERTIFICATE-----\neQ==\n-----END CERTIFICATE-----\n")}
	overdue := notice{"CertificateOverdueForRefresh", "PodCertificate refresh overdue"}
	expired := notice{"CertificateExpired", "PodCertificate expired"}
	waiting := state{pending: asked()}
	denied := &refusal{"Denied", "UnsupportedKeyType", "no RSA"}
	deniedEvent := notice{"Denied",
		`PodCertificateRequest app/req-1 was denied, reason="UnsupportedKeyType", message="no RSA"`}
	failed := &refusal{"Failed", "Down", "later"}
	failedEvent := notice{"Failed", `PodCertificateRequest app/req-1 failed, reason="Down", message="later"`}
	for name, test := range map[string]struct {
		state   state
		found   *pcr
		now     int
		want    state
		notices []notice
		wants   bool
		due     time.Time
	}{
		"nothing yet":      {now: 1, wants: true},
		"no answer":        {state: waiting, found: &pcr{}, now: 50, want: waiting, due: at(12)},
		"not listed yet":   {state: waiting, now: 11, want: waiting, due: at(12)},
		"deleted":          {state: waiting, now: 12, wants: true},
		"issued":           {state: waiting, found: issued, now: 1, want: state{current: fresh}, due: at(93)},
		"without its time": {state: waiting, found: answer("Issued", "", ""), now: 1, want: waiting, due: at(12)},
		"denied": {state: waiting, found: answer("Denied", "UnsupportedKeyType", "no RSA"), now: 1,
			want: state{refused: denied}, notices: []notice{deniedEvent}},
		"failed at a refresh": {state: state{current: old, pending: asked()}, found: answer("Failed", "Down", "later"),
			now: 31, want: state{refused: failed}, notices: []notice{failedEvent}},
		"before the refresh": {state: state{current: old}, now: 29, want: state{current: old}, due: at(30)},
		"due": {state: state{current: old}, now: 30, want: state{current: old}, wants: true,
			due: at(30)},
		"refresh pending": {state: state{current: old, pending: asked()}, now: 11,
			want: state{current: old, pending: asked()}, due: at(12)},
		"refreshed": {state: state{current: old, pending: asked(), overdue: true, expired: true}, found: issued,
			now: 70, want: state{current: fresh}, due: at(93)},
		"refresh deleted": {state: state{current: old, pending: asked()}, now: 35, want: state{current: old},
			wants: true, due: at(30)},
		"overdue": {state: state{current: old, pending: asked()}, found: &pcr{}, now: 40,
			want: state{current: old, pending: asked(), overdue: true}, notices: []notice{overdue}, due: at(12)},
		"overdue still": {state: state{current: old, overdue: true}, now: 50,
			want: state{current: old, overdue: true}, wants: true, due: at(30)},
		"expired": {state: state{current: old}, now: 60, want: state{current: old, overdue: true, expired: true},
			notices: []notice{overdue, expired}, wants: true, due: at(30)},
	} {
		t.Run(name, func(t *testing.T) {
			got, notices := test.state.look(test.found, "app", at(test.now), minutes(3))
			all := cmp.AllowUnexported(state{}, credential{}, request{}, refusal{}, notice{})
			if d := cmp.Diff(test.want, got, all) + cmp.Diff(test.notices, notices, all); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if wants := got.wants(at(test.now)); wants != test.wants {
				t.Errorf("wants a request: %t", wants)
			}
			if due := got.due(); !due.Equal(test.due) {
				t.Errorf("due at %v, want %v", due, test.due)
			}
		})
	}
}

func TestWord(t *testing.T) {
	began := time.Unix(0, 0)
	current := &credential{refresh: began.Add(minutes(30)), expires: began.Add(minutes(60))}
	for want, test := range map[string]struct {
		state state
		now   int
	}{
		"not_yet_issued":      {state{pending: &request{}}, 1},
		"denied":              {state{refused: &refusal{condition: "Denied"}}, 1},
		"failed":              {state{refused: &refusal{condition: "Failed"}}, 1},
		"fresh":               {state{current: current}, 40},
		"overdue_for_refresh": {state{current: current}, 41},
		"expired":             {state{current: current}, 61},
	} {
		if got := test.state.word(began.Add(minutes(test.now))); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// A pod that waits says for what, in words that name the request and the signer's answer.
func TestLacks(t *testing.T) {
	e := entryOf("app", "example.com/s")
	for _, test := range []struct {
		state state
		err   error
		want  string
	}{
		{state{}, nil, "waiting for a certificate of the signer example.com/s"},
		{state{}, errors.New("refused"), "request a certificate of the signer example.com/s: refused"},
		{state{pending: &request{name: "req-1"}}, errors.New("earlier"),
			"waiting for the signer example.com/s to answer PodCertificateRequest app/req-1"},
		{state{refused: &refusal{"Denied", "UnsupportedKeyType", "no"}}, nil,
			`PodCertificateRequest was permanently denied: reason="UnsupportedKeyType" message="no"`},
		{state{refused: &refusal{"Failed", "Down", ""}}, nil,
			`PodCertificateRequest was permanently failed: reason="Down" message=""`},
	} {
		e.state, e.err = test.state, test.err
		if got := e.lacks(); got == nil || got.Error() != test.want {
			t.Errorf("%v, want %s", got, test.want)
		}
	}
}
