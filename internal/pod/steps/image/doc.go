// Package image brings the images of pods to the node: pull policy, pulls that
// many containers share, their bound in number, and the backoff after a failure.
//
// It owns the pulls under way and the backoff of each pod's images, both in
// memory: a restarted agent tries at once. Which images exist is the runtime's
// to say and is asked for each start. The package is the sole writer of the
// events Pulling, Pulled, BackOff, ErrImageNeverPull and InspectFailed.
//
// Step pulls ahead, for all containers of a pod at once, while its sandbox and
// volumes come up. Package container calls Ensure for the image of each start
// and joins the pull that is under way.
package image
