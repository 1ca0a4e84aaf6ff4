package browser

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/api/servertest"
	"github.com/berth-run/berth/internal/ui"
)

// An exported page is one file that shows the state without a server, and has no secrets.
func TestExportedPageShowsTheStateAlone(t *testing.T) {
	const attack = `</script><script>window.hacked=1</script><!--<script>`
	agent := servertest.Start(t)
	web := running("web")
	web.UID = "web-uid"
	web.Annotations = map[string]string{"note": attack, "example.com/api-key": "in-annotation",
		"kubectl.kubernetes.io/last-applied-configuration": `{"env":"in-last-applied"}`}
	web.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "PLAIN", Value: "in-env"}}
	web.Spec.Containers[0].Args = []string{"--password", "in-next-argument", "--token=in-flag",
		"postgres://app:in-url@db/app"}
	agent.Put(web)
	agent.Put(waiting("db", "ImagePullBackOff", attack))
	agent.Events.Event(corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web", UID: "web-uid"},
		corev1.EventTypeWarning, "Failed", "cannot log in with password=in-event")
	agent.SetTimelines(start("web"))
	agent.SetHistory(samples(50)...)
	agent.SetResources(machine(t))
	agent.SetImages(api.Image{ID: "sha256:1", Tags: []string{"example.com/web:1"}, Size: 7 << 20})
	agent.SetUsage(usageOf(web.UID))
	page, err := ui.Export(t.Context(), client.New(agent.Socket))
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"in-annotation", "in-last-applied", "in-env", "in-next-argument", "in-flag",
		"in-url", "in-event"} {
		if strings.Contains(string(page), secret) {
			t.Errorf("the exported page has the secret %q", secret)
		}
	}
	file := filepath.Join(t.TempDir(), "node.html")
	if err := os.WriteFile(file, page, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := agent.Stop(); err != nil {
		t.Fatal(err)
	}
	b := browse(t, "file://"+file)
	b.shows("This is a picture of the node from")
	b.shows("app: ImagePullBackOff: " + attack)
	b.shows("250m")
	for hash, text := range map[string]string{
		"#/pod/default/web/Start": "ready after 551 ms", "#/pod/default/web/Containers": "example.com/web:1",
		"#/pod/default/web/Events": "password=(left out)", "#/pod/default/web/Volumes": "app:/data",
		"#/pod/default/web/YAML": "value: (left out)", "#/node/Map": "CPU policy", "#/node/Images": "7.0 MiB",
		"#/node/Starts": "cri/RunPodSandbox",
	} {
		b.run(chromedp.Evaluate("location.hash = "+quote(hash), nil))
		b.shows(text)
	}
	b.run(chromedp.Evaluate(`location.hash = "#/node/Usage"`, nil))
	b.wait(`document.querySelectorAll(".chart canvas").length === 5`)
	b.wait(`!("hacked" in window)`)
	b.picture("export")
	b.clean()
}
