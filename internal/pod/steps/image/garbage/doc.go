// Package garbage removes images that nobody uses: when the disk that holds them
// gets full, when they were unused for too long, and when somebody asks.
//
// It owns the ledger of the node's images (images.json in the agent's root): when
// each was first seen and last used, and whether it was imported by hand. Which
// images exist is the runtime's to say. An image that a container has, running or
// not, or that a pod of the node names, is in use. What is in use, pinned in the
// runtime or imported by hand is never removed unless it is named.
//
//	timer, pull --> decide --> RemoveImage --> Removed
//
// Thresholds and order are the kubelet's (imageGCHighThresholdPercent and what
// belongs to it). Package image tells of pulls, the agent's API asks.
package garbage
