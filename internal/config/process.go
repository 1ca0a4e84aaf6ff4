package config

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/berth-run/berth/internal/config/embedded"
)

func checkLock(in *input, l Lock) {
	if l.Yield && l.File == "" {
		in.Invalid("--exit-on-lock-contention", true, "needs --lock-file, the file that other processes open")
	}
}

func readDead(in *input, f DiskFlags) DeadContainers {
	if f.MinAge < 0 {
		in.Invalid("--minimum-container-ttl-duration", f.MinAge.String(), "must not be negative; 0s sets no bound")
	}
	return DeadContainers{MinAge: f.MinAge, PerContainer: ptr.Deref(f.PerContainer, 1), Total: ptr.Deref(f.Total, -1)}
}

func readEmbedded(in *input, f embedded.Settings) embedded.Settings {
	if f.CRIListen != "" {
		in.Address("--cri-listen", f.CRIListen)
	}
	if f.NRISocket != embedded.NRIOff {
		in.Absolute("--nri-socket", f.NRISocket)
	}
	f.PodNetwork = cmp.Or(f.PodNetwork, embedded.NetworkAuto)
	if known := []string{embedded.NetworkAuto, embedded.NetworkCNI}; !slices.Contains(known, f.PodNetwork) {
		in.Add(field.ErrorList{field.NotSupported(field.NewPath("--pod-network"), f.PodNetwork, known)})
	}
	return f
}
