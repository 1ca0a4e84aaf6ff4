package test

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/rogpeppe/go-internal/testscript"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
)

// collector receives spans like an OpenTelemetry collector (OTLP over gRPC).
type collector struct {
	collectorpb.UnimplementedTraceServiceServer
	server *grpc.Server

	mu       sync.Mutex
	spans    map[string]span // by id
	services []string
}

type span struct{ Name, Parent string }

func (c *collector) Export(_ context.Context,
	req *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, from := range req.ResourceSpans {
		for _, a := range from.Resource.Attributes {
			if text := a.Key + "=" + a.Value.GetStringValue(); !slices.Contains(c.services, text) {
				c.services = append(c.services, text)
			}
		}
		for _, scope := range from.ScopeSpans {
			for _, s := range scope.Spans {
				c.spans[hex.EncodeToString(s.SpanId)] = span{s.Name, hex.EncodeToString(s.ParentSpanId)}
			}
		}
	}
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

// path returns the names of the spans from the root of a trace down to the span. The caller holds mu.
func (c *collector) path(id string) []string {
	s, ok := c.spans[id]
	if !ok {
		return nil
	}
	return append(c.path(s.Parent), s.Name)
}

// paths returns the paths of all spans, each as one line.
func (c *collector) paths() (lines []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.spans {
		lines = append(lines, strings.Join(c.path(id), " > "))
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}

// startCollector starts a collector, and makes agents that start from now on send it every trace.
func (h *harness) startCollector(ts *testscript.TestScript, _ []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	c := &collector{server: grpc.NewServer(), spans: map[string]span{}}
	collectorpb.RegisterTraceServiceServer(c.server, c)
	go func() { _ = c.server.Serve(l) }()
	ts.Defer(c.server.Stop)
	ts.Value(daemonKey{}).(*daemon).collector = c
	config, err := os.OpenFile(filepath.Join(rootOf(ts), "config.yaml"), os.O_APPEND|os.O_WRONLY, 0)
	ts.Check(err)
	_, err = fmt.Fprintf(config, "tracing: {endpoint: %q, samplingRatePerMillion: 1000000}\n", l.Addr())
	ts.Check(err)
	ts.Check(config.Close())
}

// awaitSpans waits until the collector has every span of a pod's timeline with the same name and parent, and the
// attributes that identify the agent.
func (h *harness) awaitSpans(ts *testscript.TestScript, args []string) {
	c := ts.Value(daemonKey{}).(*daemon).collector
	eventually(ts, func() (bool, any) {
		line, err := clientOf(ts).Pod(key(args[0])).Timeline(context.Background())
		ts.Check(err)
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, s := range line.Spans {
			if got, want := c.spans[s.ID], (span{s.Name, s.Parent}); got != want {
				return false, fmt.Sprintf("span %s: %+v, want %+v", s.ID, got, want)
			}
		}
		return len(line.Spans) > 0 && slices.Contains(c.services, "service.name=berth") &&
			slices.Contains(c.services, "host.name=node1"), c.services
	})
}

// awaitSpan waits until the collector has a span with this path: NAME > NAME...
func (h *harness) awaitSpan(ts *testscript.TestScript, args []string) {
	c := ts.Value(daemonKey{}).(*daemon).collector
	eventually(ts, func() (bool, any) {
		lines := c.paths()
		return slices.Contains(lines, args[0]), strings.Join(lines, "\n")
	})
}
