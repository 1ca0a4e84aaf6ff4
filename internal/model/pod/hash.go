package pod

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// ContainerHash returns the value of the annotation io.kubernetes.container.hash. A container whose annotation differs
// from the hash of its spec is replaced. Only name and image count. It is the kubelet's value since v1.31: FNV-1a (32
// bit) over the JSON of both, printed as a Go byte slice.
func ContainerHash(c *corev1.Container) string {
	// json.Marshal sorts the keys of a map, and cannot fail on strings.
	raw, _ := json.Marshal(map[string]string{"name": c.Name, "image": c.Image})
	h := fnv.New32a()
	_, _ = fmt.Fprintf(h, "(%T)%v", raw, raw)
	return strconv.FormatUint(uint64(h.Sum32()), 16)
}

// ContainerHashes returns the hashes of all containers of a pod by name.
func ContainerHashes(p *corev1.Pod) map[string]string {
	hashes := map[string]string{}
	for _, c := range Containers(p) {
		hashes[c.Name] = ContainerHash(c.Container)
	}
	return hashes
}
