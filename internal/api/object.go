package api

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/model/object"
)

// ObjectList is a list of objects of one kind, as the Kubernetes API writes it.
type ObjectList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []object.Value `json:"items"`
}

// Root is the path below which the API has the kinds of a group and version.
func Root(apiVersion string) string {
	if strings.Contains(apiVersion, "/") {
		return "/apis/" + apiVersion
	}
	return "/api/" + apiVersion
}
