// Package object holds the objects that pods name: ConfigMaps, Secrets, PersistentVolumes and their claims,
// RuntimeClasses.
//
// The table has one writer: package source. It writes objects of manifests and, on a node of a cluster, objects of the
// API server. The kinds of volumes, the rendering of the environment, the image credentials and the sandbox read the
// table through Objects. Each has a small interface for it. Values in the table are never changed.
//
// A missing object does not fail a pod. The step that needs it returns Missing, waits, and runs again when the object
// appears. While the cluster has not reported yet whether an object exists, reading it returns Unknown. Then a step
// waits even if the object is optional for it.
package object
