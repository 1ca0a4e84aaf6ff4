package printer

import (
	"bytes"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/cli/terminal"
)

func TestStatusStyle(t *testing.T) {
	for status, want := range map[string]terminal.Style{
		"Running": terminal.Good, "Completed": terminal.Faint, "Pending": terminal.Waiting,
		"Init:0/2":    terminal.Waiting,
		"Terminating": terminal.Waiting, "Init:Error": terminal.Bad, "CrashLoopBackOff": terminal.Bad,
		"ExitCode:3": terminal.Bad, "Evicted": terminal.Bad,
	} {
		if got := statusStyle(status); got != want {
			t.Errorf("%s: %q, want %q", status, got, want)
		}
	}
}

func TestNodeConditionStyle(t *testing.T) {
	for _, test := range []struct {
		kind   corev1.NodeConditionType
		status corev1.ConditionStatus
		want   terminal.Style
	}{
		{corev1.NodeReady, corev1.ConditionTrue, terminal.Good},
		{corev1.NodeReady, corev1.ConditionUnknown, terminal.Bad},
		{corev1.NodeDiskPressure, corev1.ConditionFalse, terminal.Good},
		{corev1.NodeDiskPressure, corev1.ConditionTrue, terminal.Bad},
	} {
		if got := nodeConditionStyle(test.kind, test.status); got != test.want {
			t.Errorf("%s is %s: %q, want %q", test.kind, test.status, got, test.want)
		}
	}
}

func TestTableStylesKeepColumnsAligned(t *testing.T) {
	for color, want := range map[bool]string{
		false: "NAME   STATUS   AGE\nweb    Error    5m\n  a    ok\n",
		true: "\x1b[1mNAME\x1b[0m   \x1b[1mSTATUS\x1b[0m   \x1b[1mAGE\x1b[0m\n" +
			"web    \x1b[31mError\x1b[0m    5m\n  a    ok\n",
	} {
		var out bytes.Buffer
		table := NewTable(&out, "NAME", "STATUS", "AGE")
		table.Color(color)
		table.Style("STATUS", func(status string, row []string) terminal.Style {
			if row[0] == "web" && status == "Error" {
				return terminal.Bad
			}
			return ""
		})
		table.Row("web", "Error", "5m")
		table.Row("  a", "ok", "")
		if err := table.Flush(); err != nil || out.String() != want {
			t.Errorf("color %v: %v\n%q\nwant\n%q", color, err, out.String(), want)
		}
	}
}

func TestStylesOfText(t *testing.T) {
	for _, test := range []struct {
		of   func(string) terminal.Style
		want map[string]terminal.Style
	}{
		{claimStyle, map[string]terminal.Style{"Bound": terminal.Good, "Available": terminal.Good,
			"Pending": terminal.Waiting, "": terminal.Waiting, "Released": terminal.Faint, "Failed": terminal.Bad,
			"Lost": terminal.Bad}},
		{imageStyle, map[string]terminal.Style{"in use, pinned": terminal.Good, "pinned": "",
			"unused": terminal.Faint}},
		{distanceStyle, map[string]terminal.Style{"80Mi": terminal.Good, "0": terminal.Bad, "-320Mi": terminal.Bad}},
		{trendStyle, map[string]terminal.Style{"steady": "", "falling 20Mi/s, reached in 4s": terminal.Waiting}},
	} {
		for text, want := range test.want {
			if got := test.of(text); got != want {
				t.Errorf("%q: %q, want %q", text, got, want)
			}
		}
	}
}

// A container chooses its termination message, and a terminal obeys its control characters.
func TestControlCharactersStayOutOfTheTerminal(t *testing.T) {
	var out bytes.Buffer
	table := NewTable(&out, "MESSAGE")
	table.Row("a\x1b[2Jb\nc\x07\u009bd")
	if err := table.Flush(); err != nil {
		t.Fatal(err)
	}
	p := load[corev1.PodList](t, "pods.yaml").Items[0]
	p.Status.Message = "\x1b]0;owned\x07"
	p.Annotations = map[string]string{"a": "x", "b": "\x1b[1A"}
	if err := DescribePod(&out, &p, nil, t0); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(out.String(), "\x1b\x07\u009b") {
		t.Errorf("control characters in %q", out.String())
	}
}
