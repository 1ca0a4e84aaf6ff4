package runtime

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/berth-run/berth/internal/base/golden"
)

// example is a complete configuration.
func example() Config {
	return withDefaults(Config{Root: "/var/lib/berth", State: "/run/berth", Log: slog.New(slog.DiscardHandler)})
}

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func TestValidate(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Config)
		want   string // part of the error; empty if no error is expected
	}{
		"defaults":       {func(*Config) {}, ""},
		"one family":     {func(c *Config) { c.PodCIDRs = prefixes("10.0.0.0/24") }, ""},
		"relative root":  {func(c *Config) { c.Root = "berth" }, `root directory "berth" is not an absolute path`},
		"no state":       {func(c *Config) { c.State = "" }, `state directory "" is not an absolute path`},
		"same directory": {func(c *Config) { c.State = c.Root + "/" }, "same directory"},
		"long bridge":    {func(c *Config) { c.Bridge = strings.Repeat("b", 16) }, "bridge name"},
		"odd bridge":     {func(c *Config) { c.Bridge = "a/b" }, "bridge name"},
		"host bits":      {func(c *Config) { c.PodCIDRs = prefixes("10.1.2.3/16") }, "host bits set, use 10.1.0.0/16"},
		"two of a kind":  {func(c *Config) { c.PodCIDRs = prefixes("10.0.0.0/24", "10.1.0.0/24") }, "at most one IPv4"},
		"zero prefix":    {func(c *Config) { c.PodCIDRs = []netip.Prefix{{}} }, "not valid"},
	} {
		t.Run(name, func(t *testing.T) {
			config := example()
			test.change(&config)
			err := validate(config)
			if test.want == "" && err != nil ||
				test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

func TestServerConfig(t *testing.T) {
	boxes := sandboxes{controller: "berth", shim: "/var/lib/berth/bin/containerd-shim-runc-v2"}
	made := serverConfig(example(), host{sockets: "/run/berth", overlay: true, lowerOOM: true},
		boxes, true)
	golden.JSON(t, "server.json", made.Plugins)
	bounded := example()
	bounded.SystemdCgroup = true
	golden.JSON(t, "server-bounded.json",
		serverConfig(bounded, host{sockets: "/run/berth"}, boxes, false).Plugins)
}

func TestLevelsOfContainerdMessages(t *testing.T) {
	notFound := status.Error(codes.NotFound, "cannot find sandbox")
	for _, tt := range []struct {
		name    string
		level   logrus.Level
		message string
		err     error
		want    slog.Level
	}{
		{"a call for something that is gone", logrus.ErrorLevel, `PodSandboxStatus for "x" failed`, notFound,
			slog.LevelDebug},
		{"a call that its caller cancelled", logrus.ErrorLevel, `PullImage "x" failed`, context.Canceled,
			slog.LevelDebug},
		{"a client that closed its event stream", logrus.ErrorLevel, "GetContainerEvents failed, error",
			status.Error(codes.Unavailable, "transport is closing"), slog.LevelDebug},
		{"a call that failed", logrus.ErrorLevel, `StartContainer for "x" failed`,
			status.Error(codes.Unknown, "no space left on device"), slog.LevelError},
		{"a warning", logrus.WarnLevel, "something is slow", nil, slog.LevelWarn},
		{"an internal message", logrus.InfoLevel, "starting", nil, slog.LevelDebug},
	} {
		var out strings.Builder
		hook := logHook{to: slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})),
			ended: func() error { return nil }}
		entry := &logrus.Entry{Level: tt.level, Message: tt.message, Data: logrus.Fields{}}
		if tt.err != nil {
			entry.Data[logrus.ErrorKey] = tt.err
		}
		if err := hook.Fire(entry); err != nil || !strings.Contains(out.String(), "level="+tt.want.String()+" ") {
			t.Errorf("%s: %v, %s", tt.name, err, out.String())
		}
	}
}
