package nodeobject

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/config/gate"
)

// maxNames is how many names the object lists for one image.
const maxNames = 5

// Images returns the largest images in the object's form, at most limit of them (-1 for all). Each has up to 5 names,
// digests first (nodeStatusMaxImages).
func Images(all []*runtimeapi.Image, limit int) []corev1.ContainerImage {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b *runtimeapi.Image) int {
		return cmp.Or(cmp.Compare(b.GetSize(), a.GetSize()), cmp.Compare(a.GetId(), b.GetId()))
	})
	if limit >= 0 && limit < len(all) {
		all = all[:limit]
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

// RuntimeOf converts the runtime's version and status. Both may be nil if they are not known yet.
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

// Declared returns the sorted features that the scheduler and the API server can rely on (KEP-5328). Of those in
// Kubernetes 1.36 this agent supports all but user namespaces for pods in the host's network. The gate of a feature
// switches it off, and NodeDeclaredFeatures the whole list. Without an HTTPS server there are no WebSockets.
func Declared(off gate.Disabled, webSockets bool) []string {
	if off.DeclaredFeatures {
		return nil
	}
	var all []string
	for _, f := range []struct {
		name string
		on   bool
	}{
		{"ExtendWebSocketsToKubelet", webSockets && !off.Server.WebSockets},
		{"InPlacePodLevelResourcesVerticalScaling", !off.Resources.ResizePod && !off.Resources.PodLevel},
		{"InPlacePodVerticalScalingInitContainers", !off.Resources.ResizeInit},
		{"RestartAllContainersOnContainerExits", !off.Fields.RestartAll && !off.Fields.RestartRules},
	} {
		if f.on {
			all = append(all, f.name)
		}
	}
	return all
}
