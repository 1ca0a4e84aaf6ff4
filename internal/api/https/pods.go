package https

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/api/containers"
	"github.com/berth-run/berth/internal/api/logs"
	"github.com/berth-run/berth/internal/api/server"
	"github.com/berth-run/berth/internal/model/pod"
)

func writeJSON(w http.ResponseWriter, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(data) // it fails only if the connection is broken, and then there is no reader
	return nil
}

// podTable reads the pods that requests name.
type podTable struct{ pods *server.Pods }

func (t podTable) all() []*corev1.Pod {
	var pods []*corev1.Pod
	for _, p := range t.pods.Snapshot().All() {
		pods = append(pods, p)
	}
	return pods
}

// pod returns the pod that the path names. If the path has a UID, it must match.
func (t podTable) pod(r *http.Request) (*corev1.Pod, error) {
	key := types.NamespacedName{Namespace: r.PathValue("namespace"), Name: r.PathValue("pod")}
	p, ok := t.pods.Get(key)
	if uid := r.PathValue("uid"); !ok || uid != "" && uid != string(p.UID) {
		return nil, answer.NotFound(key)
	}
	return p, nil
}

// container returns the pod and the container that the path names. The container must be one of the pod's.
func (t podTable) container(r *http.Request) (*corev1.Pod, string, error) {
	p, err := t.pod(r)
	if err != nil {
		return nil, "", err
	}
	name := r.PathValue("container")
	if _, ok := pod.FindContainer(p, name); !ok {
		return nil, "",
			answer.Failure(http.StatusNotFound, metav1.StatusReasonNotFound,
				fmt.Sprintf("container %q not found in pod %q", name, p.Name))
	}
	return p, name, nil
}

// running is container for a container that must be running.
func (t podTable) running(r *http.Request) (*corev1.Pod, string, error) {
	p, name, err := t.container(r)
	if err == nil {
		_, err = containers.Running(p, name)
	}
	return p, name, err
}

// podRoutes reads pods and their logs, runs commands and writes checkpoints.
type podRoutes struct {
	podTable
	logs        logs.Logs
	runtime     Runtime
	checkpoints string // a directory
	logStreams  bool   // the parameter stream selects stdout or stderr
}

func (s podRoutes) list(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, podList(s.all()))
}

func (s podRoutes) listRunning(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, podList(runningPods(s.all())))
}

func (s podRoutes) containerLogs(w http.ResponseWriter, r *http.Request) error {
	p, name, err := s.container(r)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	if !s.logStreams && q.Has("stream") {
		q.Del("stream")
		r = r.Clone(r.Context())
		r.URL.RawQuery = q.Encode()
	}
	if tail := q.Get("tail"); tail != "" { // the old name of tailLines
		q.Del("tail")
		q.Set("tailLines", tail)
		if tail == "all" {
			q.Del("tailLines")
		}
		r = r.Clone(r.Context())
		r.URL.RawQuery = q.Encode()
	}
	opts, instance, err := logs.Options(r)
	if err != nil {
		return err
	}
	opts.Container = name
	return s.logs.Serve(w, r, logs.Request{Pod: p, Options: opts, Instance: instance})
}

func (s podRoutes) run(w http.ResponseWriter, r *http.Request) error {
	p, name, err := s.running(r)
	if err != nil {
		return err
	}
	// The command is one parameter, split at spaces. The API has no other form.
	out, err := s.runtime.Run(r.Context(), p, name, strings.Split(r.URL.Query().Get("cmd"), " "))
	if err != nil {
		return fmt.Errorf("run a command in container %q of pod %s: %w", name, pod.FullName(p), err)
	}
	w.Header().Set("Content-Type", "application/json") // the kubelet sets it for any output
	_, _ = w.Write(out)
	return nil
}

// checkpoint writes a checkpoint archive that only root can read, and answers its path.
func (s podRoutes) checkpoint(w http.ResponseWriter, r *http.Request) error {
	p, name, err := s.container(r)
	if err != nil {
		return err
	}
	var timeout time.Duration
	if all := r.URL.Query()["timeout"]; len(all) > 0 {
		seconds, err := strconv.ParseUint(all[len(all)-1], 10, 31)
		if err != nil {
			return answer.BadRequest(fmt.Sprintf("query parameter timeout=%q is not a number of seconds",
				all[len(all)-1]), "")
		}
		timeout = time.Duration(seconds) * time.Second
	}
	file := filepath.Join(s.checkpoints,
		fmt.Sprintf("checkpoint-%s_%s-%s-%s.tar", p.Name, p.Namespace, name, time.Now().Format(time.RFC3339)))
	err = os.MkdirAll(s.checkpoints, 0o700)
	if err == nil {
		err = s.runtime.Checkpoint(r.Context(), p, name, file, timeout)
	}
	if err != nil {
		return fmt.Errorf("checkpointing of %s/%s/%s failed: %w", p.Namespace, p.Name, name, err)
	}
	return writeJSON(w, map[string][]string{"items": {file}})
}
