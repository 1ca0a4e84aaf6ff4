package test

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/berth-run/berth/test/metricsserver"
)

// startMetricsServer serves the node's resource metrics on the loopback address at $METRICS_PORT until the script
// ends. Its certificate is for the service metrics-server of kube-system, from the authority in $CA_BUNDLE. It
// scrapes with a token of the service account metrics-server.
func startMetricsServer(ts *testscript.TestScript, _ []string) {
	n := nodeOf(ts)
	ctx, cancel := context.WithCancel(context.Background())
	token, err := n.client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).CreateToken(ctx, "metrics-server",
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	ts.Check(err)
	client, err := rest.HTTPClientFor(&rest.Config{BearerToken: token.Status.Token,
		TLSClientConfig: rest.TLSClientConfig{CAFile: n.cluster.CA()}})
	ts.Check(err)
	client.Timeout = 10 * time.Second
	object, err := n.client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	ts.Check(err)
	s := &metricsserver.Server{Node: nodeName, URL: "https://" + endpoint(object), Client: client,
		Every: 2 * time.Second}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	_, port, err := net.SplitHostPort(listener.Addr().String())
	ts.Check(err)
	ca, err := os.ReadFile(n.cluster.CA())
	ts.Check(err)
	ts.Setenv("METRICS_PORT", port)
	ts.Setenv("CA_BUNDLE", base64.StdEncoding.EncodeToString(ca))
	cert, key := n.cluster.ServingCertificate("metrics-server", "metrics-server.kube-system.svc")
	server := &http.Server{Handler: s.Handler(),
		ErrorLog: log.New(io.Discard, "", 0)} // the API server closes connections at any time
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) }) // until ctx ends
	running.Go(func() {
		if err := server.ServeTLS(listener, cert, key); !errors.Is(err, http.ErrServerClosed) {
			ts.Logf("metrics server: %v", err)
		}
	})
	ts.Defer(func() {
		cancel()
		_ = server.Close()
		running.Wait()
	})
}

// endpoint is the address and port of a node's server, from the Node object.
func endpoint(n *corev1.Node) string {
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			return net.JoinHostPort(a.Address, strconv.Itoa(int(n.Status.DaemonEndpoints.KubeletEndpoint.Port)))
		}
	}
	return ""
}
