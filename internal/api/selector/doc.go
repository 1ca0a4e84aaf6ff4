// Package selector filters objects by namespace, labels and fields, as lists and watches of the Kubernetes API do.
// It keeps no state.
package selector
