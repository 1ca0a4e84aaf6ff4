package api

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Image is one image in the runtime's store.
type Image struct {
	ID      string   `json:"id"`
	Tags    []string `json:"tags,omitempty"`
	Digests []string `json:"digests,omitempty"`
	// Size in bytes, as the runtime counts it.
	Size   uint64 `json:"size"`
	Pinned bool   `json:"pinned,omitempty"`
	// Loaded says that it was loaded from an archive: it is not removed by itself.
	Loaded bool `json:"loaded,omitempty"`
	// InUse says that a container or a pod of the node has it.
	InUse bool `json:"inUse,omitempty"`
	// LastUsed is when that was seen last.
	LastUsed *metav1.Time `json:"lastUsed,omitempty"`
}

// ImageList answers a listing, a load with the images that it brought, and a
// removal with those that are gone.
type ImageList struct {
	metav1.TypeMeta `json:",inline"`
	Items           []Image `json:"items"`
}

// Pull is how a pull of an image is going. A stream of them ends with one that
// has an image or an error.
type Pull struct {
	metav1.TypeMeta `json:",inline"`
	// Name of the image, complete.
	Name string `json:"name"`
	// Pods wait for it: namespace/name.
	Pods []string `json:"pods,omitempty"`
	// Waiting says that other pulls go first, Stalled that it makes no progress.
	Waiting bool `json:"waiting,omitempty"`
	Stalled bool `json:"stalled,omitempty"`
	// Fetched of Total bytes, and bytes per second; all 0 with a runtime that does
	// not tell. Total is 0 while it is not known.
	Fetched   int64 `json:"fetched,omitempty"`
	Total     int64 `json:"total,omitempty"`
	PerSecond int64 `json:"perSecond,omitempty"`
	// Elapsed is in seconds.
	Elapsed float64 `json:"elapsed,omitempty"`
	// Image is what was pulled, at the end.
	Image *Image `json:"image,omitempty"`
	// Error is why nothing was, at the end.
	Error *metav1.Status `json:"error,omitempty"`
}

// PullList answers a listing of pulls.
type PullList struct {
	metav1.TypeMeta `json:",inline"`
	Items           []Pull `json:"items"`
}

// ImageUsage is what images take; bytes.
type ImageUsage struct {
	metav1.TypeMeta `json:",inline"`
	Images          int   `json:"images"`
	InUse           int   `json:"inUse"`
	Size            int64 `json:"size"`
	// Reclaimable is the size of those that a prune removes.
	Reclaimable int64 `json:"reclaimable"`
	// Capacity and Available are of the file system that they are on.
	Capacity  int64 `json:"capacity"`
	Available int64 `json:"available"`
}
