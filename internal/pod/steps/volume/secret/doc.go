// Package secret says what files a secret volume has.
//
// It owns kubernetes.io~secret below a pod's volumes; package payload writes it
// there, in memory and never on a disk.
package secret
