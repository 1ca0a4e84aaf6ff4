package auth

import (
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/request/union"
	"k8s.io/apiserver/pkg/authentication/request/websocket"
	requestx509 "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
)

// The modes of authorization (KubeletConfiguration.authorization.mode).
const (
	ModeWebhook     = "Webhook"
	ModeAlwaysAllow = "AlwaysAllow"
)

// Options are the parts of KubeletConfiguration.authentication and
// .authorization, and what they need.
type Options struct {
	// Node is the name of the node that users must have rights to.
	Node string
	// ClientCAFile has the authorities of client certificates, PEM. Empty: no
	// client certificate counts.
	ClientCAFile string
	// Anonymous lets those who show nothing be system:anonymous. What they show
	// must still be valid.
	Anonymous bool
	// Tokens has the API server asked about bearer tokens.
	Tokens bool
	// TokenTTL is how long the answer about a token is kept. 0: not at all.
	TokenTTL time.Duration
	// Mode is ModeWebhook or ModeAlwaysAllow.
	Mode string
	// AllowedTTL and DeniedTTL are how long an answer about rights is kept. 0: not at all.
	AllowedTTL, DeniedTTL time.Duration
	// Client asks with the node's own rights. It may be nil when neither Tokens
	// nor ModeWebhook is set.
	Client kubernetes.Interface
	Log    *slog.Logger
}

// Auth says who may do what on this node.
type Auth struct {
	node    string
	clients *clientCAs
	who     authenticator.Request
	rights  rights // nil: everybody has all
	log     *slog.Logger
}

// New checks the options. It reads nothing: see Load.
func New(o Options) (*Auth, error) {
	if o.Client == nil && o.Tokens {
		return nil,
			errors.New(
				"authentication.webhook.enabled needs an API server to ask: give --kubeconfig, or set it to false")
	}
	a := &Auth{node: o.Node, log: o.Log}
	switch {
	case o.Mode == ModeAlwaysAllow:
	case o.Mode != ModeWebhook:
		return nil, fmt.Errorf("authorization.mode %q is unknown: set %s or %s", o.Mode, ModeWebhook, ModeAlwaysAllow)
	case o.Client == nil:
		return nil,
			fmt.Errorf("authorization.mode %s needs an API server to ask: give --kubeconfig, or set the mode to %s",
				ModeWebhook, ModeAlwaysAllow)
	default:
		a.rights = newAccessReviews(o.Client.AuthorizationV1().SubjectAccessReviews(), o.AllowedTTL, o.DeniedTTL)
	}
	var ways []authenticator.Request
	if o.ClientCAFile != "" {
		a.clients = &clientCAs{file: o.ClientCAFile, log: o.Log}
		ways = append(ways, requestx509.NewDynamic(a.clients.verifyOptions, requestx509.CommonNameUserConversion))
	}
	if o.Tokens {
		tokens := cache.New(tokenReviews{o.Client.AuthenticationV1().TokenReviews()}, false, o.TokenTTL, o.TokenTTL)
		ways = append(ways, bearertoken.New(tokens), websocket.NewProtocolAuthenticator(tokens))
	}
	a.who = group.NewAuthenticatedGroupAdder(union.New(ways...))
	if o.Anonymous {
		a.who = union.NewFailOnError(a.who, authenticator.RequestFunc(anonymous))
	}
	return a, nil
}

// Load reads the client CA file. It is called before anything is served; later
// changes of the file are found without it.
func (a *Auth) Load() error {
	if a.clients == nil {
		return nil
	}
	return a.clients.load()
}

// ClientCAs are the authorities whose certificates count, or nil: what a server
// tells its clients when it asks for one.
func (a *Auth) ClientCAs() *x509.CertPool {
	if a.clients == nil {
		return nil
	}
	return a.clients.pool()
}

// Check returns nil when whoever sent r may do verb on one of the node's
// subresources, which are tried in turn. Otherwise it returns an
// apierrors.APIStatus with code 401, 403, or 500 when the API server could not
// be asked; its message is the kubelet's.
//
// A bearer token that counted is removed from the request.
func (a *Auth) Check(r *http.Request, verb string, subresources []string) error {
	who, ok, err := a.who.AuthenticateRequest(r)
	if err != nil {
		a.log.Info("request is not authenticated", "path", r.URL.Path, "from", r.RemoteAddr, "error", err)
	}
	if err != nil || !ok {
		return refusal(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized")
	}
	if a.rights == nil {
		return nil
	}
	for _, sub := range subresources {
		want := attributes{node: a.node, verb: verb, subresource: sub}
		allowed, err := a.rights.allowed(r.Context(), who.User, want)
		switch {
		case err != nil:
			a.log.Warn("rights of a request are not known", "user", who.User.GetName(), "verb", verb, "subresource",
				sub, "error", err)
			return refusal(http.StatusInternalServerError, metav1.StatusReasonInternalError,
				fmt.Sprintf("Authorization error (user=%s, verb=%s, resource=%s, subresource=%s)", who.User.GetName(),
					verb, nodes, sub))
		case allowed:
			return nil
		}
	}
	return refusal(http.StatusForbidden, metav1.StatusReasonForbidden,
		fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=%s, subresource(s)=%v)", who.User.GetName(), verb, nodes,
			subresources))
}

func refusal(code int32, why metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: why,
		Message: message}}
}

func anonymous(*http.Request) (*authenticator.Response, bool, error) {
	return &authenticator.Response{User: &user.DefaultInfo{Name: user.Anonymous,
		Groups: []string{user.AllUnauthenticated}}}, true, nil
}
