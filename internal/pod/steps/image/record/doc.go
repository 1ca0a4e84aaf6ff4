// Package record stores the credentials that each image of the node was pulled with. So a pod cannot use an image that
// only another pod's secret has access to (KEP-2535, imagePullCredentialsVerificationPolicy).
//
// It owns two directories. pulling has a file for each image that is being pulled, written before the first byte is
// fetched. pulled has a file for each pulled image, with the credentials that had access. An agent that is killed in
// between leaves the first file. That image then counts as pulled with unknown credentials: a pod that wants it must
// pull it again.
//
// Package image writes the records and reads them. Package garbage reports removed images.
package record
