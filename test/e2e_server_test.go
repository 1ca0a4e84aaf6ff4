package test

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"

	"github.com/rogpeppe/go-internal/testscript"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/berth-run/berth/internal/cluster/kubeapi/kubeapitest"
)

// ask sends a request to the node's own port with the client certificate of a user. It checks the status code, and
// writes the body to a file. The user "admin" may do everything. The user "nobody" sends no certificate.
func ask(ts *testscript.TestScript, args []string) {
	n := nodeOf(ts)
	user, method, path, code, file := args[0], args[1], args[2], args[3], args[4]
	object, err := n.client.CoreV1().Nodes().Get(context.Background(), nodeName, metav1.GetOptions{})
	ts.Check(err)
	config := &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: n.cluster.CA(), ServerName: nodeName}}
	switch user {
	case "nobody":
	case "admin":
		admin := n.cluster.AdminConfig().TLSClientConfig
		config.CertData, config.KeyData = admin.CertData, admin.KeyData
	default:
		client := n.cluster.Config(kubeapitest.Identity{User: user}).TLSClientConfig
		config.CertData, config.KeyData = client.CertData, client.KeyData
	}
	transport, err := rest.TransportFor(config)
	ts.Check(err)
	address := net.JoinHostPort(n.address, strconv.Itoa(int(object.Status.DaemonEndpoints.KubeletEndpoint.Port)))
	request, err := http.NewRequestWithContext(context.Background(), method, "https://"+address+path, http.NoBody)
	ts.Check(err)
	answer, err := (&http.Client{Transport: transport}).Do(request)
	ts.Check(err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(file), body, 0o644))
	if got := strconv.Itoa(answer.StatusCode); got != code {
		ts.Fatalf("%s %s as %s: %s, want %s:\n%s", method, path, user, got, code, body)
	}
}
