package token_test

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-run/berth/internal/cluster/kubeapi/kubeapitest"
	"github.com/berth-run/berth/internal/cluster/token"
)

var shared = kubeapitest.NewShared(kubeapitest.Options{})

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

type noBundles struct{}

func (noBundles) Bundles() ([]*certificatesv1beta1.ClusterTrustBundle, error) { return nil, nil }

// The API server accepts the token of a volume as the pod's, for its audience. The node requests it with its own
// credentials and rights.
func TestIssueToken(t *testing.T) {
	api := shared.Cluster(t)
	admin, namespace := api.Client(), api.Namespace()
	client, err := kubernetes.NewForConfig(api.NodeConfig("node-" + namespace))
	if err != nil {
		t.Fatal(err)
	}
	p, err := admin.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.PodSpec{NodeName: "node-" + namespace,
			Containers: []corev1.Container{{Name: "c", Image: "example.com/workload:1"}}}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var access *corev1.Volume
	for i, v := range p.Spec.Volumes {
		if strings.HasPrefix(v.Name, "kube-api-access-") {
			access = &p.Spec.Volumes[i]
		}
	}
	if access == nil {
		t.Fatal("the API server gave the pod no kube-api-access volume")
	}
	issuer := token.Issuer{Tokens: token.New(token.FromAPI(client), slog.New(slog.DiscardHandler)),
		Bundles: noBundles{}}
	files, until, err := issuer.Issue(t.Context(), p, access, 0)
	if err != nil {
		t.Fatal(err)
	}
	life := time.Duration(*access.Projected.Sources[0].ServiceAccountToken.ExpirationSeconds) * time.Second
	if left := time.Until(until); left > life*4/5 || left < life*4/5-time.Minute {
		t.Errorf("renewed after %v of a life of %v", left, life)
	}
	user := review(t, admin, string(files["token"]))
	if user.Username != "system:serviceaccount:"+namespace+":default" ||
		user.Extra["authentication.kubernetes.io/pod-name"][0] != "web" {
		t.Errorf("user of the token: %v", user)
	}
	again, _, err := issuer.Issue(t.Context(), p, access, 0)
	if err != nil || string(again["token"]) != string(files["token"]) {
		t.Errorf("issued twice: %v", err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	other := p.DeepCopy()
	other.UID = "another"
	if _, _, err := issuer.Issue(ctx, other, access, 0); err == nil {
		t.Error("a token for a pod that is not there")
	}
}

func review(t *testing.T, admin kubernetes.Interface, text string) authenticationv1.UserInfo {
	t.Helper()
	got, err := admin.AuthenticationV1().TokenReviews().Create(t.Context(),
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: text}}, metav1.CreateOptions{})
	if err != nil || !got.Status.Authenticated {
		t.Fatalf("%v, %+v", err, got)
	}
	return got.Status.User
}
