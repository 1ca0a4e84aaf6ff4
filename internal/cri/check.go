package cri

import (
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// checkAnswer rejects a successful answer that lacks a field which every caller relies on. The rules are the kubelet's.
// A nil status inside an answer is allowed where CRI gives it a meaning (an unknown image).
func checkAnswer(resp any) error {
	missing := ""
	switch r := resp.(type) {
	case *runtimeapi.VersionResponse:
		missing = firstMissing(
			field{"Version", r.Version != ""},
			field{"RuntimeName", r.RuntimeName != ""},
			field{"RuntimeVersion", r.RuntimeVersion != ""},
			field{"RuntimeApiVersion", r.RuntimeApiVersion != ""})
	case *runtimeapi.StatusResponse:
		missing = missingCondition(r.GetStatus().GetConditions())
	case *runtimeapi.RunPodSandboxResponse:
		missing = firstMissing(field{"PodSandboxId", r.PodSandboxId != ""})
	case *runtimeapi.CreateContainerResponse:
		missing = firstMissing(field{"ContainerId", r.ContainerId != ""})
	case *runtimeapi.PodSandboxStatusResponse:
		missing = missingInSandbox(r.Status)
	case *runtimeapi.ContainerStatusResponse:
		missing = missingInContainer(r.Status)
	case *runtimeapi.ImageStatusResponse:
		if r.Image != nil {
			missing = firstMissing(field{"Image.Id", r.Image.Id != ""}, field{"Image.Size", r.Image.Size != 0})
		}
	case *runtimeapi.PullImageResponse:
		missing = firstMissing(field{"ImageRef", r.ImageRef != ""})
	case interface{ GetUrl() string }: // Exec, Attach, PortForward
		missing = firstMissing(field{"Url", r.GetUrl() != ""})
	}
	if missing == "" {
		return nil
	}
	return &badAnswer{"success without " + missing}
}

type field struct {
	name string
	set  bool
}

func firstMissing(fields ...field) string {
	for _, f := range fields {
		if !f.set {
			return f.name
		}
	}
	return ""
}

func missingCondition(cs []*runtimeapi.RuntimeCondition) string {
	set := map[string]bool{}
	for _, c := range cs {
		set[c.GetType()] = true
	}
	return firstMissing(
		field{"condition " + runtimeapi.RuntimeReady, set[runtimeapi.RuntimeReady]},
		field{"condition " + runtimeapi.NetworkReady, set[runtimeapi.NetworkReady]})
}

func missingInSandbox(s *runtimeapi.PodSandboxStatus) string {
	m := s.GetMetadata()
	return firstMissing(
		field{"Status", s != nil},
		field{"Status.Id", s.GetId() != ""},
		field{"Status.Metadata", m != nil},
		field{"Status.Metadata.Name", m.GetName() != ""},
		field{"Status.Metadata.Namespace", m.GetNamespace() != ""},
		field{"Status.Metadata.Uid", m.GetUid() != ""},
		// After a reboot, containerd answers with the Go time zero, which is a number below 0.
		field{"Status.CreatedAt", s.GetCreatedAt() != 0})
}

func missingInContainer(s *runtimeapi.ContainerStatus) string {
	return firstMissing(
		field{"Status", s != nil},
		field{"Status.Id", s.GetId() != ""},
		field{"Status.Metadata", s.GetMetadata() != nil},
		field{"Status.Metadata.Name", s.GetMetadata().GetName() != ""},
		field{"Status.CreatedAt", s.GetCreatedAt() > 0},
		field{"Status.Image", s.GetImage().GetImage() != ""},
		field{"Status.ImageRef", s.GetImageRef() != ""})
}
