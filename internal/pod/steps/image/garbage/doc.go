// Package garbage removes unused images: when their disk gets full, when they were unused for too long, and on request.
//
// It owns the ledger of the node's images (images.json in the agent's root): when each image was first seen and last
// used, and whether it was imported by hand. The runtime knows which images exist. An image is in use if a container
// uses it, running or not, or if a pod of the node names it. An image that is in use, pinned in the runtime or imported
// by hand is removed only if a request names it.
//
//	timer, pull --> decide --> RemoveImage --> Removed
//
// Thresholds and order are the kubelet's (imageGCHighThresholdPercent and its companions). Package image reports pulls.
// The agent's API passes on requests.
package garbage
