// Package image pulls the images of pods: pull policy, pulls that several containers share, the limit of parallel
// pulls, and the backoff after a failure.
//
// It owns the running pulls and the backoff of each pod's images. Both are in memory only: a restarted agent tries
// again at once. Which images exist is the runtime's knowledge, and the package asks the runtime for each start. The
// package is the sole writer of the events Pulling, Pulled, BackOff, ErrImageNeverPull and InspectFailed.
//
// Step pulls ahead, for all containers of a pod at once, while the pod's sandbox and volumes are set up. Package
// container calls Ensure for the image of each start and joins the running pull.
package image
