// Package record remembers with what each image of the node was pulled, so that
// a pod is not given an image that only another pod's secret has access to
// (KEP-2535, imagePullCredentialsVerificationPolicy).
//
// It owns two directories: pulling has a file for each image that is being
// pulled, written before the first byte is fetched; pulled has a file for each
// image that was, with the credentials that had access. An agent that is killed
// in between leaves the first: what came of that pull counts as pulled by
// credentials that nobody knows, and has to be pulled again by who wants it.
//
// Package image writes and asks; package garbage tells of images that are gone.
package record
