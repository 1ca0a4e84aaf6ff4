// Package projected computes the files of a projected volume, which puts several sources into one directory. If two
// sources have the same path, the later source wins.
//
// It owns kubernetes.io~projected below a pod's volumes. Package payload writes the files only in memory. An Issuer
// issues the credentials that only a control plane can issue. A standalone agent has no Issuer.
package projected
