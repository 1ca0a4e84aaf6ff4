// Package intree translates the volumes of clouds, which were once a part of Kubernetes ("in-tree"), into volumes of
// CSI drivers. Kubernetes calls this CSI migration (KEP-625). The translation is pure, and the same as in the control
// plane: both use k8s.io/csi-translation-lib.
package intree
