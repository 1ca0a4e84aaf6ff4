// Package object holds what pods name besides themselves: ConfigMaps, Secrets,
// PersistentVolumes and their claims, RuntimeClasses.
//
// The table has one writer: package source, from manifests and, on a node of a
// cluster, from what package object/cluster hands to it. The kinds of volumes, the rendering of the environment, the image
// credentials and the sandbox read it through Objects, each behind an interface
// of its own. Values in the table are never changed.
//
// An object that is not there is no failure of the pod: what names it waits
// (Missing) and is woken when it comes. Nor is one of which the cluster has not told
// yet (Unknown), for which also those wait that could do without.
package object
