package local

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/api/server"
	"github.com/berth-run/berth/internal/base/looptest"
	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/pod/fleet"
	"github.com/berth-run/berth/internal/pod/source"
	"github.com/berth-run/berth/internal/pod/source/manifest"
	"github.com/berth-run/berth/internal/pod/status"
	"github.com/berth-run/berth/internal/pod/steps/image/garbage"
)

func TestPlacePutsObjectsIntoTheNamespace(t *testing.T) {
	tests := []struct {
		name, own, given, want string
		refused                bool
	}{
		{name: "no namespace is asked for", own: "web", want: "web"},
		{name: "the object has none", given: "web", want: "web"},
		{name: "the same", own: "web", given: "web", want: "web"},
		{name: "another", own: "db", given: "web", want: "db", refused: true},
	}
	for _, test := range tests {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: test.own}}
		err := place(manifest.Object{Pod: p}, test.given)
		if (err != nil) != test.refused || p.Namespace != test.want {
			t.Errorf("%s: namespace %q, error %v", test.name, p.Namespace, err)
		}
	}
}

func TestApplyErrorsHaveTheirPlaceInTheAPI(t *testing.T) {
	other := errors.New("disk full")
	for _, test := range []struct {
		name string
		err  error
		is   func(error) bool
	}{
		{"taken by another source", source.ErrTaken, apierrors.IsConflict},
		{"invalid", reason.New(reason.FailedValidation, "no image"), apierrors.IsBadRequest},
		{"anything else", other, func(err error) bool { return errors.Is(err, other) }},
	} {
		if err := applyError(test.err); !test.is(err) {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

func TestImageErrorsHaveTheirPlaceInTheAPI(t *testing.T) {
	for name, test := range map[string]struct {
		err error
		is  func(error) bool
	}{
		"unknown":   {garbage.ErrNoImage, apierrors.IsNotFound},
		"ambiguous": {garbage.ErrAmbiguous, apierrors.IsBadRequest},
		"in use":    {garbage.ErrInUse, apierrors.IsConflict},
	} {
		if err := imageError(test.err); !test.is(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestExportNames(t *testing.T) {
	tagged := garbage.Image{ID: "sha256:1", Tags: []string{"example.com/a:1", "example.com/a:2"},
		Digests: []string{"example.com/a@sha256:9"}}
	for _, test := range []struct {
		name  string
		image garbage.Image
		given string
		want  []string
	}{
		{"the given tag", tagged, "example.com/a:2", []string{"example.com/a:2"}},
		{"all tags of an id", tagged, "sha256:1", tagged.Tags},
		{"the digest without tags", garbage.Image{ID: "sha256:1", Digests: tagged.Digests}, "sha256:1", tagged.Digests},
		{"the id alone", garbage.Image{ID: "sha256:1"}, "sha256:1", []string{"sha256:1"}},
	} {
		if diff := cmp.Diff(test.want, exportNames(test.image, test.given)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, diff)
		}
	}
}

// An agent that has just started has not published the pods that an earlier one stored.
func TestDeletePodThatIsNotPublishedYet(t *testing.T) {
	pods := localPods(t)
	web := types.NamespacedName{Namespace: "default", Name: "web"}
	apply(t, pods, "a")
	if _, err := pods.Delete(t.Context(), web, server.DeleteOptions{UID: "other"}); !apierrors.IsConflict(err) {
		t.Errorf("delete a pod with another UID: %v", err)
	}
	if deleted, err := pods.Delete(t.Context(), web, server.DeleteOptions{}); err != nil || deleted.Name != "web" {
		t.Errorf("delete: %v, %v", deleted, err)
	}
	if _, err := pods.Delete(t.Context(), web, server.DeleteOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("delete it again: %v", err)
	}
}

// While a pod that was replaced ends, its name stands for its successor too, which waits.
func TestDeleteEndsTheSuccessorOfAnEndingPod(t *testing.T) {
	for _, tt := range []struct {
		name  string
		uid   func(old, successor types.UID) types.UID // the precondition
		stays bool                                     // the successor
	}{
		{"by name", func(_, _ types.UID) types.UID { return "" }, false},
		{"the successor", func(_, successor types.UID) types.UID { return successor }, false},
		{"the ending pod", func(old, _ types.UID) types.UID { return old }, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pods := localPods(t)
			web := types.NamespacedName{Namespace: "default", Name: "web"}
			apply(t, pods, "a")
			old, err := pods.known(t.Context(), web)
			if err != nil {
				t.Fatal(err)
			}
			ending := old.DeepCopy()
			ending.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			pods.Statuses.Pods().Put(web, ending)
			apply(t, pods, "b")
			successor, err := pods.Sources.Local.Pod(t.Context(), web)
			if err != nil || successor.UID == old.UID {
				t.Fatalf("successor of %s: %v, %v", old.UID, successor, err)
			}
			if _, err := pods.Delete(t.Context(), web,
				server.DeleteOptions{UID: tt.uid(old.UID, successor.UID)}); err != nil {
				t.Fatal(err)
			}
			left, err := pods.Sources.Local.Pod(t.Context(), web)
			if err != nil || (left != nil) != tt.stays {
				t.Errorf("the successor is %v, %v, want it to stay: %v", left, err, tt.stays)
			}
		})
	}
}

// localPods runs sources for Pods until the test ends.
func localPods(t *testing.T) Pods {
	t.Helper()
	sources := source.New(source.Options{NodeName: "node1", Applied: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	t.Cleanup(looptest.Start(t, sources.Run, context.Canceled))
	return Pods{Node: "node1", Sources: sources, Fleet: &fleet.Fleet{}, Statuses: status.New(status.Options{})}
}

// apply applies the pod web with this hostname.
func apply(t *testing.T, pods Pods, hostname string) {
	t.Helper()
	text := "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: a, image: i}], hostname: " +
		hostname + "}\n"
	if _, err := pods.Apply(t.Context(), []byte(text), server.ApplyOptions{Keep: true}); err != nil {
		t.Fatal(err)
	}
}

// brokenArchives is a runtime that cannot read archives.
type brokenArchives struct{ Archives }

func (brokenArchives) Import(context.Context, io.Reader) ([]*runtimeapi.Image, error) {
	return nil, errors.New("no archive")
}

func TestLoadReturnsTheRuntimesError(t *testing.T) {
	_, err := Images{Archives: brokenArchives{}}.Load(t.Context(), strings.NewReader(""))
	if err == nil || err.Error() != "no archive" {
		t.Errorf("%v", err)
	}
}
