// Package projected says which files a projected volume has: those of several sources in one directory. If two sources
// have the same path, the later one wins.
//
// It owns kubernetes.io~projected below a pod's volumes. Package payload writes the files only in memory. An Issuer
// issues what only a control plane can; a standalone agent has no Issuer.
package projected
