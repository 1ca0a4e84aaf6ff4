// Package answer writes the answers of the local API: JSON bodies, and errors as Kubernetes Status objects with
// a next step for the user. It keeps no state.
//
// Implementations of the interfaces in package server choose the code and reason of an answer by returning errors
// of this package, or any error of k8s.io/apimachinery/pkg/api/errors. Every other error is answered as an internal
// error. If it carries a reason (package reason), the answer has that reason.
package answer
