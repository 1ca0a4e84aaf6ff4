// Package projected says what files a projected volume has: those of several
// sources in one directory, where a later source takes a path from an earlier.
//
// It owns kubernetes.io~projected below a pod's volumes; package payload writes
// it there, in memory and never on a disk. What only a control plane can hand
// out comes from an Issuer, of which a standalone agent has none.
package projected
