package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/model/object"
)

// objectsPath returns the path of the objects of a kind in a namespace, or in all if the namespace is
// empty.
func objectsPath(kind object.Kind, namespace string) string {
	root := api.Root(kind.APIVersion)
	if namespace != "" && kind.Namespaced {
		root += "/namespaces/" + url.PathEscape(namespace)
	}
	return root + "/" + kind.Resource
}

// Objects is the client for the objects of one kind.
type Objects struct {
	c    *Client
	kind object.Kind
}

// Objects returns the client for the objects of a kind.
func (c *Client) Objects(kind object.Kind) Objects { return Objects{c, kind} }

// List lists objects by namespace and name.
func (o Objects) List(ctx context.Context, sel Select) (*api.ObjectList, error) {
	var raw struct {
		metav1.TypeMeta
		metav1.ListMeta `json:"metadata"`
		Items           []json.RawMessage `json:"items"`
	}
	if err := o.c.call(ctx, http.MethodGet, objectsPath(o.kind, sel.Namespace), sel.query(), nil, &raw); err != nil {
		return nil, err
	}
	list := &api.ObjectList{TypeMeta: raw.TypeMeta, ListMeta: raw.ListMeta, Items: make([]object.Value, len(raw.Items))}
	for i, text := range raw.Items {
		list.Items[i] = o.kind.New()
		if err := json.Unmarshal(text, list.Items[i]); err != nil {
			return nil, fmt.Errorf("read %s of the agent's answer: %w", o.kind.Resource, err)
		}
	}
	return list, nil
}

// Get returns one object.
func (o Objects) Get(ctx context.Context, key object.Key) (object.Value, error) {
	v := o.kind.New()
	return v, o.c.call(ctx, http.MethodGet, o.path(key), nil, nil, v)
}

// Delete deletes an object that was applied.
func (o Objects) Delete(ctx context.Context, key object.Key) error {
	return o.c.call(ctx, http.MethodDelete, o.path(key), nil, nil, &metav1.Status{})
}

func (o Objects) path(key object.Key) string {
	return objectsPath(o.kind, key.Namespace) + "/" + url.PathEscape(key.Name)
}
