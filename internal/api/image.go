package api

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Image is one image in the runtime's store.
type Image struct {
	ID      string   `json:"id"`
	Tags    []string `json:"tags,omitempty"`
	Digests []string `json:"digests,omitempty"`
	// Size is in bytes, as the runtime counts them.
	Size   uint64 `json:"size"`
	Pinned bool   `json:"pinned,omitempty"`
	// Loaded says that the image came from an archive. Garbage collection keeps such an image.
	Loaded bool `json:"loaded,omitempty"`
	// InUse says that a container or a pod on this node uses the image.
	InUse bool `json:"inUse,omitempty"`
	// LastUsed is when the image was last in use.
	LastUsed *metav1.Time `json:"lastUsed,omitempty"`
}

// ImageList is the answer to a list of images, to a load (the loaded images) and to a removal (the removed
// images).
type ImageList struct {
	metav1.TypeMeta `json:",inline"`
	Items           []Image `json:"items"`
}

// Pull is the progress of one image pull. A stream of Pull values ends with one that has an Image or an
// Error.
type Pull struct {
	metav1.TypeMeta `json:",inline"`
	// Name is the full image name, with registry and tag or digest.
	Name string `json:"name"`
	// Pods lists the pods that wait for the pull, as namespace/name.
	Pods []string `json:"pods,omitempty"`
	// Waiting says that the pull is queued behind others. Stalled says that it makes no progress.
	Waiting bool `json:"waiting,omitempty"`
	Stalled bool `json:"stalled,omitempty"`
	// Fetched and Total are in bytes, PerSecond is in bytes per second. All are 0 if the runtime does not
	// report them, and Total is 0 until it is known.
	Fetched   int64 `json:"fetched,omitempty"`
	Total     int64 `json:"total,omitempty"`
	PerSecond int64 `json:"perSecond,omitempty"`
	// Elapsed is in seconds.
	Elapsed float64 `json:"elapsed,omitempty"`
	// Image is the pulled image. It is set in the last value of a successful pull.
	Image *Image `json:"image,omitempty"`
	// Error is the reason why the pull failed. It is set in the last value of a failed pull.
	Error *metav1.Status `json:"error,omitempty"`
}

// PullList is the list of the image pulls under way.
type PullList struct {
	metav1.TypeMeta `json:",inline"`
	Items           []Pull `json:"items"`
}

// ImageUsage is the disk space that images use, in bytes.
type ImageUsage struct {
	metav1.TypeMeta `json:",inline"`
	Images          int   `json:"images"`
	InUse           int   `json:"inUse"`
	Size            int64 `json:"size"`
	// Reclaimable is the size of the images that a prune would remove.
	Reclaimable int64 `json:"reclaimable"`
	// Capacity and Available describe the file system that holds the images.
	Capacity  int64 `json:"capacity"`
	Available int64 `json:"available"`
}
