package server

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/base/store"
	"github.com/berth-run/berth/internal/model/object"
)

// Objects reads and deletes the ConfigMaps, Secrets and other objects that pods name.
type Objects interface {
	// Snapshot returns the current table. Callers must not change its values.
	Snapshot() store.Snapshot[object.Key, runtime.Object]
	// Delete removes an object that was applied.
	Delete(ctx context.Context, key object.Key) error
}

// objectRoutes reads and deletes the objects that pods name.
type objectRoutes struct {
	objects Objects
	versions
}

const objectQuery = "labelSelector fieldSelector limit"

// routes returns the routes that the Kubernetes API has for each kind. settled delays them while the agent starts.
func (s objectRoutes) routes(settled func(handler) handler) []route {
	var all []route
	for _, kind := range object.Kinds() {
		root := api.Root(kind.APIVersion)
		list, get, remove := s.list(kind), s.get(kind), s.remove(kind)
		path := root + "/" + kind.Resource
		all = append(all, route{"GET", path, objectQuery, "list the objects of kind " + kind.Name, settled(list)})
		if kind.Namespaced {
			path = root + "/namespaces/{namespace}/" + kind.Resource
			all = append(all, route{"GET", path, objectQuery, "list the objects of a namespace", settled(list)})
		}
		all = append(all,
			route{"GET", path + "/{name}", "resourceVersion", "get one", settled(get)},
			route{"DELETE", path + "/{name}", "", "delete one that was applied", settled(remove)})
	}
	return all
}

func (s objectRoutes) list(kind object.Kind) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		opts, err := listOptionsOf(r, objectFields(kind.New()))
		if err != nil {
			return err
		}
		snapshot := s.objects.Snapshot()
		version := s.version(snapshot.Revision())
		items := []object.Value{}
		for key, row := range snapshot.All() {
			v, ok := row.(object.Value)
			if ok && key.Kind == kind.Name && opts.selector.Matches(v.GetNamespace(), v.GetLabels(), objectFields(v)) {
				items = append(items, versioned(v, version))
			}
		}
		slices.SortFunc(items, func(a, b object.Value) int {
			return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
		})
		answer.WriteJSON(w, http.StatusOK, api.ObjectList{
			TypeMeta: metav1.TypeMeta{Kind: kind.Name + "List", APIVersion: kind.APIVersion},
			ListMeta: metav1.ListMeta{ResourceVersion: version}, Items: items,
		})
		return nil
	}
}

func (s objectRoutes) get(kind object.Kind) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		snapshot := s.objects.Snapshot()
		key := kind.Key(r.PathValue("namespace"), r.PathValue("name"))
		row, _ := snapshot.Get(key)
		v, ok := row.(object.Value)
		if !ok {
			return answer.ObjectNotFound(key)
		}
		answer.WriteJSON(w, http.StatusOK, versioned(v, s.version(snapshot.Revision())))
		return nil
	}
}

func (s objectRoutes) remove(kind object.Kind) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if err := s.objects.Delete(r.Context(), kind.Key(r.PathValue("namespace"), r.PathValue("name"))); err != nil {
			return err
		}
		answer.WriteJSON(w, http.StatusOK,
			metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess})
		return nil
	}
}

// versioned returns a copy of an object for an answer, with its resourceVersion.
func versioned(v object.Value, resourceVersion string) object.Value {
	c, _ := v.DeepCopyObject().(object.Value) // every copy of an object.Value is one
	c.SetResourceVersion(resourceVersion)
	return c
}

func objectFields(v object.Value) fields.Set {
	return fields.Set{"metadata.name": v.GetName(), "metadata.namespace": v.GetNamespace()}
}
