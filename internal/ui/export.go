package ui

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/berth-run/berth/internal/api/client"
)

// frozen is the state in an exported page: the answers to the page's requests, by path.
type frozen struct {
	At      time.Time      `json:"at"`
	Node    string         `json:"node"`
	Answers map[string]any `json:"answers"`
}

// alone is the text of an exported page, with places for its policy, style, state and script. The policy allows only
// its own script and style, and no connection.
const alone = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="%s">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Berth</title>
<style>%s</style>
</head>
<body><div id="page"></div>
<script type="application/json" id="state">%s</script>
<script>%s</script>
</body>
</html>
`

// Export returns the page with the present state of the agent's node as one file. It leaves out secrets, values that
// look like secrets (conceal), and logs.
func Export(ctx context.Context, agent *client.Client) ([]byte, error) {
	files, err := pageFiles()
	if err != nil {
		return nil, err
	}
	state, err := freeze(ctx, agent)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(state) // escapes what would end the element
	if err != nil {
		return nil, err
	}
	script, err := unpack(files["export.js"])
	if err != nil {
		return nil, err
	}
	style, err := unpack(files["main.css"])
	if err != nil {
		return nil, err
	}
	policy := fmt.Sprintf("default-src 'none'; script-src %s; style-src %s; base-uri 'none'; form-action 'none'; "+
		"require-trusted-types-for 'script'; trusted-types 'none'", source(script), source(style))
	return fmt.Appendf(nil, alone, policy, style, data, script), nil
}

// source returns the source expression of an inline script or style.
func source(text []byte) string {
	sum := sha256.Sum256(text)
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

func unpack(packed []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// freeze collects the answers to the page's requests.
func freeze(ctx context.Context, agent *client.Client) (*frozen, error) {
	status, err := agent.Status(ctx)
	if err != nil {
		return nil, err
	}
	state := &frozen{At: time.Now().UTC(), Node: status.Node, Answers: map[string]any{}}
	pods, err := agent.Pods(ctx, client.Select{})
	if err != nil {
		return nil, err
	}
	const own = "/berth/v1"
	paths := map[string]string{ // of the agent, by path of the page
		"/api/v1/pods": "/api/v1/pods", "/api/v1/events": "/api/v1/events", own + "/history": own + "/history",
	}
	for _, name := range []string{"status", "topology", "pressure", "images", "images/usage"} {
		paths["/api"+own+"/"+name] = own + "/" + name
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		for _, name := range []string{"timeline", "lifeline"} {
			path := own + "/pods/" + p.Namespace + "/" + p.Name + "/" + name
			paths["/api"+path] = path
		}
		text, err := concealedYAML(p)
		if err != nil {
			return nil, err
		}
		state.Answers["/yaml/"+p.Namespace+"/"+p.Name] = text
	}
	for to, from := range paths {
		answer, err := ask(ctx, agent, from)
		if apierrors.IsNotFound(err) {
			continue // a pod without a recorded start, or a pod that is gone by now
		}
		if err != nil {
			return nil, err
		}
		state.Answers[to] = conceal("", answer)
	}
	return state, state.measure(ctx, agent)
}

// measure adds what pods use, and the answers that the server of the page computes.
func (f *frozen) measure(ctx context.Context, agent *client.Client) error {
	for usage, err := range client.WatchUsage(ctx, agent) {
		if err != nil {
			return err
		}
		_, second := f.Answers[usagePath]
		f.Answers[usagePath] = usage
		if second {
			break // CPU usage needs two measurements
		}
	}
	starts, err := recentStarts(ctx, agent)
	if err != nil {
		return err
	}
	f.Answers["/starts"] = starts
	return nil
}

func ask(ctx context.Context, agent *client.Client, path string) (answer any, err error) {
	resp, err := agent.Open(ctx, path, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New("agent answered " + resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return nil, fmt.Errorf("read the agent's answer to GET %s: %w", path, err)
	}
	return answer, nil
}

func concealedYAML(p *corev1.Pod) (string, error) {
	p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	data, err := json.Marshal(p)
	var object any
	if err == nil {
		err = json.Unmarshal(data, &object)
	}
	if err != nil {
		return "", err
	}
	text, err := yaml.Marshal(conceal("", object))
	return string(text), err
}
