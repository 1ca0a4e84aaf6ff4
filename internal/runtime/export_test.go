package runtime

// UseStock makes r start pods as the versions before did: with containerd's own sandbox controller, a pause container
// of this image, and this program as a shim for each pod.
func UseStock(r *Runtime, image, shim string) { r.sandboxes = sandboxes{"podsandbox", image, shim} }
