package server_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/server"
	"github.com/berth-run/berth/internal/api/servertest"
)

func TestExplain(t *testing.T) {
	a := servertest.Start(t)
	a.SetExplanations(api.Explanation{Namespace: "far", Name: "web",
		Answer: api.Answer{Verdict: api.Rejected, Reason: "NodeName", Message: "no"}})
	code, body := ask(t, a, "POST", "/berth/v1/explain?origin=web.yaml&namespace=far", "kind: Pod")
	want := `{"kind":"ExplanationList","apiVersion":"berth.run/v1","items":[{"namespace":"far","name":"web",` +
		`"verdict":"rejected","reason":"NodeName","message":"no"}]}`
	if code != 200 || strings.TrimSpace(body) != want {
		t.Errorf("%d %s", code, body)
	}
	if diff := cmp.Diff([]server.ApplyOptions{{Origin: "web.yaml", Namespace: "far"}}, a.Applied()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	_, body = ask(t, a, "POST", "/berth/v1/explain", "")
	if diff := cmp.Diff("400 BadRequest: request: nothing is in it -> correct the manifest",
		brief(t, body)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	_, body = ask(t, a, "POST", "/berth/v1/explain", strings.Repeat(" ", api.MaxManifest+1))
	if diff := cmp.Diff("413 RequestEntityTooLarge: request: manifests are limited to 10 MiB -> apply fewer at a time",
		brief(t, body)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
