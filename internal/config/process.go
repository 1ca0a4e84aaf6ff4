package config

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

type process struct{ *builder }

func (b process) lock(f LockFlags) {
	if f.Yield && f.File == "" {
		b.invalid("--exit-on-lock-contention", true, "needs --lock-file, the file that other processes open")
	}
}

func (b process) dead(f DeadFlags) DeadContainers {
	if f.MinAge < 0 {
		b.invalid("--minimum-container-ttl-duration", f.MinAge.String(), "must not be negative; 0s sets no bound")
	}
	return DeadContainers{MinAge: f.MinAge, PerContainer: or(f.PerContainer, 1), Total: or(f.Total, -1)}
}

func (b process) embedded(f EmbeddedFlags) EmbeddedFlags {
	if f.CRIListen != "" {
		b.socket("--cri-listen", f.CRIListen)
	}
	f.PodNetwork = cmp.Or(f.PodNetwork, PodNetworkAuto)
	if known := []string{PodNetworkAuto, PodNetworkCNI}; !slices.Contains(known, f.PodNetwork) {
		b.add(field.ErrorList{field.NotSupported(field.NewPath("--pod-network"), f.PodNetwork, known)})
	}
	return f
}
