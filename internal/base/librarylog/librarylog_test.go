package librarylog

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus"
	"k8s.io/klog/v2"
)

func TestForwardNamesTheLibrary(t *testing.T) {
	var out bytes.Buffer
	Forward(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	})))
	logrus.WithError(errors.New("no such file")).Warn("cannot read")
	logrus.Error("cannot write")
	logrus.Info("about internals")
	klog.ErrorS(nil, "cannot connect", "host", "a")
	want := []string{
		`level=WARN msg="cannot read" component=logrus error="no such file"`,
		`level=ERROR msg="cannot write" component=logrus`,
		`level=ERROR msg="cannot connect" component=client-go host=a`,
	}
	if diff := cmp.Diff(want, strings.Split(strings.TrimSpace(out.String()), "\n")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
