package nodeobject

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const maxNames = 5

// Images are the largest images as the object lists them: at most most of them
// (-1: all), each with up to 5 names, digests first (nodeStatusMaxImages).
func Images(all []*runtimeapi.Image, most int) []corev1.ContainerImage {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b *runtimeapi.Image) int {
		return cmp.Or(cmp.Compare(b.GetSize(), a.GetSize()), cmp.Compare(a.GetId(), b.GetId()))
	})
	if most >= 0 && most < len(all) {
		all = all[:most]
	}
	list := make([]corev1.ContainerImage, 0, len(all))
	for _, image := range all {
		names := slices.Concat(image.GetRepoDigests(), image.GetRepoTags())
		list = append(list, corev1.ContainerImage{
			Names: names[:min(len(names), maxNames)], SizeBytes: int64(image.GetSize()),
		})
	}
	return list
}

// RuntimeOf is what a runtime says of itself. status may be nil: not known yet.
func RuntimeOf(version *runtimeapi.VersionResponse, status *runtimeapi.StatusResponse) Runtime {
	r := Runtime{Version: "unknown://Unknown"}
	if version != nil {
		r.Version = version.GetRuntimeName() + "://" + version.GetRuntimeVersion()
	}
	for _, h := range status.GetRuntimeHandlers() {
		recursive, users := h.GetFeatures().GetRecursiveReadOnlyMounts(), h.GetFeatures().GetUserNamespaces()
		r.Handlers = append(r.Handlers, corev1.NodeRuntimeHandler{
			Name:     h.GetName(),
			Features: &corev1.NodeRuntimeHandlerFeatures{RecursiveReadOnlyMounts: &recursive, UserNamespaces: &users},
		})
	}
	slices.SortFunc(r.Handlers, func(a, b corev1.NodeRuntimeHandler) int { return cmp.Compare(a.Name, b.Name) })
	if f := status.GetFeatures(); f != nil {
		groups := f.GetSupplementalGroupsPolicy()
		r.Features = &corev1.NodeFeatures{SupplementalGroupsPolicy: &groups}
	}
	return r
}

// Declared are the features that the scheduler and the API server may count on
// here (KEP-5328), sorted. Of those of Kubernetes 1.36 this agent has the restart
// of all containers and the resize of init containers; it takes WebSockets for
// exec, attach and port-forward when webSockets says that its server does. It
// does not resize resources of a whole pod, and does not give pods of the host's
// network user namespaces. There are no gates for these.
func Declared(webSockets bool) []string {
	all := []string{"InPlacePodVerticalScalingInitContainers", "RestartAllContainersOnContainerExits"}
	if webSockets {
		all = append([]string{"ExtendWebSocketsToKubelet"}, all...)
	}
	return all
}
