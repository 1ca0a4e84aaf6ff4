package endpoint

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/config"
)

func TestDecide(t *testing.T) {
	const socket, other = "unix:///run/containerd/containerd.sock", "unix:///run/crio/crio.sock"
	away := errors.New("no such file")
	for _, tt := range []struct {
		name  string
		facts Facts
		want  string // the endpoint
		err   bool
	}{
		{"standalone", Facts{Trouble: away, Pods: true}, "", false},
		{"said", Facts{Configured: other, Joined: true, Used: true, Default: socket}, other, false},
		{"said to be embedded", Facts{Configured: Embedded, Joined: true, Default: socket, Pods: true}, "", false},
		{"embedded before", Facts{Joined: true, Used: true, Default: socket, Pods: true}, "", false},
		{"a kubelet was here", Facts{Joined: true, Default: socket, Pods: true}, socket, false},
		{"a new node with a runtime", Facts{Joined: true, Default: socket}, socket, false},
		{"a kubelet was here and its runtime is away", Facts{Joined: true, Default: socket, Trouble: away, Pods: true},
			"", true},
		{"a new node without a runtime", Facts{Joined: true, Default: socket, Trouble: away}, "", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := decide(tt.facts)
			if got.Endpoint != tt.want || (err != nil) != tt.err || (got.Reason == "") != tt.err {
				t.Errorf("%+v, %v; want %q", got, err, tt.want)
			}
		})
	}
}

// Without an endpoint in the configuration, the state of the node decides: a runtime that answers, pods, or earlier use
// of the embedded runtime.
func TestChoose(t *testing.T) {
	root := t.TempDir()
	c := &config.Config{RootDir: root,
		Runtime: config.Runtime{KubeletsDefault: "unix://" + filepath.Join(root, "none.sock")}}
	choose := func() string {
		got, err := Choose(t.Context(), c, slog.New(slog.DiscardHandler))
		if err != nil {
			return "error"
		}
		return got.Endpoint
	}
	if err := os.Mkdir(filepath.Join(root, "pods"), 0o755); err != nil {
		t.Fatal(err)
	}
	got := []string{choose()}
	if err := os.Mkdir(filepath.Join(root, "pods", "uid"), 0o755); err != nil {
		t.Fatal(err)
	}
	got = append(got, choose())
	c.Runtime.KubeletsDefault = serve(t, filepath.Join(root, "runtime.sock"))
	got = append(got, choose())
	if err := os.MkdirAll(filepath.Join(root, "runtime", "content"), 0o755); err != nil {
		t.Fatal(err)
	}
	got = append(got, choose())
	if diff := cmp.Diff([]string{"", "error", c.Runtime.KubeletsDefault, ""}, got); diff != "" {
		t.Errorf("an empty node, with pods, with a runtime, with an embedded one (-want +got):\n%s", diff)
	}
}

// version is a runtime that only answers with its version.
type version struct {
	runtimeapi.UnimplementedRuntimeServiceServer
}

func (version) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "test", RuntimeVersion: "1",
		RuntimeApiVersion: "v1"}, nil
}

func serve(t *testing.T, socket string) (endpoint string) {
	t.Helper()
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(s, version{})
	done := make(chan error)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return "unix://" + socket
}
