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

// Options are the settings of KubeletConfiguration.authentication and .authorization, and the client that
// they need.
type Options struct {
	// Node is the name of the node that users need rights on.
	Node string
	// ClientCAFile holds the authorities that sign client certificates, in PEM. If it is empty, client
	// certificates are ignored.
	ClientCAFile string
	// ClientCAOnce means that the file is read only once (feature gate ReloadKubeletClientCAFile: false).
	ClientCAOnce bool
	// Anonymous treats a request without credentials as system:anonymous. Credentials that are sent must
	// still be valid.
	Anonymous bool
	// Tokens enables bearer tokens, which the API server checks.
	Tokens bool
	// TokenTTL is how long the answer about a token is cached. 0 disables the cache.
	TokenTTL time.Duration
	// Mode is ModeWebhook or ModeAlwaysAllow.
	Mode string
	// AllowedTTL and DeniedTTL are how long a positive or negative answer about rights is cached. 0
	// disables the cache.
	AllowedTTL, DeniedTTL time.Duration
	// TokenReviews and AccessReviews have the node's own rights. TokenReviews is needed for Tokens, AccessReviews for
	// ModeWebhook.
	TokenReviews, AccessReviews kubernetes.Interface
	Log                         *slog.Logger
}

// Auth authenticates and authorizes requests to this node.
type Auth struct {
	node    string
	clients *clientCAs
	who     authenticator.Request
	rights  rights // nil permits everything
	log     *slog.Logger
}

// New checks the options and returns an Auth. Load then reads the client CA file.
func New(o Options) (*Auth, error) {
	if o.TokenReviews == nil && o.Tokens {
		return nil,
			errors.New(
				"authentication.webhook.enabled needs an API server to ask: give --kubeconfig, or set it to false")
	}
	a := &Auth{node: o.Node, log: o.Log}
	switch {
	case o.Mode == ModeAlwaysAllow:
	case o.Mode != ModeWebhook:
		return nil, fmt.Errorf("authorization.mode %q is unknown: set %s or %s", o.Mode, ModeWebhook, ModeAlwaysAllow)
	case o.AccessReviews == nil:
		return nil,
			fmt.Errorf("authorization.mode %s needs an API server to ask: give --kubeconfig, or set the mode to %s",
				ModeWebhook, ModeAlwaysAllow)
	default:
		a.rights = newAccessReviews(o.AccessReviews.AuthorizationV1().SubjectAccessReviews(), o.AllowedTTL, o.DeniedTTL)
	}
	var ways []authenticator.Request
	if o.ClientCAFile != "" {
		a.clients = &clientCAs{file: o.ClientCAFile, once: o.ClientCAOnce, log: o.Log}
		ways = append(ways, requestx509.NewDynamic(a.clients.verifyOptions, requestx509.CommonNameUserConversion))
	}
	if o.Tokens {
		reviews := newTokenReviews(o.TokenReviews.AuthenticationV1().TokenReviews())
		tokens := cache.New(reviews, false, o.TokenTTL, o.TokenTTL)
		ways = append(ways, bearertoken.New(tokens), websocket.NewProtocolAuthenticator(tokens))
	}
	a.who = group.NewAuthenticatedGroupAdder(union.New(ways...))
	if o.Anonymous {
		a.who = union.NewFailOnError(a.who, authenticator.RequestFunc(anonymous))
	}
	return a, nil
}

// Load reads the client CA file. Call it once before the server starts. Later changes of the file are found
// without another call.
func (a *Auth) Load() error {
	if a.clients == nil {
		return nil
	}
	return a.clients.load()
}

// ClientCAs returns the accepted certificate authorities, or nil. A TLS server sends their names when it
// requests a client certificate.
func (a *Auth) ClientCAs() *x509.CertPool {
	if a.clients == nil {
		return nil
	}
	return a.clients.pool()
}

// Check returns nil if the sender of r may do verb on at least one of the subresources of this node. It
// checks them in order. Otherwise it returns an apierrors.APIStatus. Its code is 401 or 403, 429 while too many reviews
// wait, or 500 if the API server did not answer. The message is the kubelet's.
//
// Check removes an accepted bearer token from the request.
func (a *Auth) Check(r *http.Request, verb string, subresources []string) error {
	who, ok, err := a.who.AuthenticateRequest(r)
	if err != nil {
		a.log.Info("request refused: invalid credentials", "path", r.URL.Path, "from", r.RemoteAddr, "error", err)
	}
	if errors.Is(err, errBusy) {
		return busy()
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
		case errors.Is(err, errBusy):
			return busy()
		case err != nil:
			a.log.Warn("request refused: the API server did not answer the access review", "user", who.User.GetName(),
				"verb", verb, "subresource",
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

// busy is the answer to a request that cannot be checked now.
func busy() error { return apierrors.NewTooManyRequests(errBusy.Error(), 1) }

func refusal(code int32, why metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: why,
		Message: message}}
}

func anonymous(*http.Request) (*authenticator.Response, bool, error) {
	return &authenticator.Response{User: &user.DefaultInfo{Name: user.Anonymous,
		Groups: []string{user.AllUnauthenticated}}}, true, nil
}
