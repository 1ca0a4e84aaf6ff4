// Package garbage decides when containerd removes what nothing in its database refers to: layers, content of images and
// leases that have expired.
//
// It takes the place of containerd's own plugin for that, which looks each ten seconds whether something was deleted,
// also while nothing happens. A wake-up is a good part of what an idle agent costs, so here deletions wake.
package garbage
