package server_test

import (
	"context"
	"net"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"github.com/berth-run/berth/internal/api/servertest"
)

// client-go can read the agent's pods, logs and events through the local API.
func TestKubernetesClient(t *testing.T) {
	a := servertest.Start(t)
	p := servertest.Pod("web", "app")
	servertest.Run(p)
	p = a.Put(p)
	a.WriteLog(t, p, "app", 0, "hello")
	core := coreClient(t, a)
	pods := func(r *rest.Request) *rest.Request { return r.Namespace("default").Resource("pods") }

	list := &corev1.PodList{}
	err := pods(core.Get()).VersionedParams(&metav1.ListOptions{LabelSelector: "!none", Limit: 500},
		metav1.ParameterCodec).Do(t.Context()).Into(list)
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("list: %v, %v", list, err)
	}
	w, err := pods(core.Get()).VersionedParams(&metav1.ListOptions{Watch: true, ResourceVersion: list.ResourceVersion},
		metav1.ParameterCodec).Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	if log, err := pods(core.Get()).Name("web").SubResource("log").Param("container",
		"app").DoRaw(t.Context()); err != nil || string(log) != "hello\n" {
		t.Errorf("log: %q, %v", log, err)
	}
	if err := pods(core.Get()).Name("none").Do(t.Context()).Error(); !apierrors.IsNotFound(err) {
		t.Errorf("get of a pod that is not there: %v", err)
	}
	if err := pods(core.Delete()).Name("web").Body(metav1.NewDeleteOptions(3)).Do(t.Context()).Error(); err != nil {
		t.Errorf("delete: %v", err)
	}
	if d := a.Deleted(); len(d) != 1 || *d[0].Grace != 3*time.Second {
		t.Errorf("deletions: %v", d)
	}
	for last := watch.Modified; last != watch.Deleted; {
		e := <-w.ResultChan()
		if last = e.Type; last != watch.Modified && last != watch.Deleted {
			t.Fatalf("watch: %v", e)
		}
	}
	events := &corev1.EventList{}
	if err := core.Get().Resource("events").Param("fieldSelector", "involvedObject.name=web").Do(t.Context()).Into(
		events); err != nil {
		t.Errorf("events: %v", err)
	}
}

// coreClient returns client-go's core/v1 client for an agent's socket.
func coreClient(t *testing.T, a *servertest.Agent) *rest.RESTClient {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	config := &rest.Config{Host: "http://berth", APIPath: "/api",
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", a.Socket)
		}}
	config.GroupVersion = &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	core, err := rest.RESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return core
}
