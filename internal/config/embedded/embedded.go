package embedded

// Settings configure the runtime inside the agent. They are refused with any other runtime.
type Settings struct {
	// CRIListen also serves the runtime's CRI at this address: unix:///path.
	CRIListen string
	// PodNetwork is NetworkAuto (default) or NetworkCNI.
	PodNetwork string
	// CNIConfDir holds the machine's CNI configuration. Default: /etc/cni/net.d.
	CNIConfDir string
	// NRISocket is the socket where NRI plugins connect, an absolute path, or NRIOff. Empty for the default, see NRI.
	NRISocket string
	// Handlers are the runtime handlers beside DefaultHandler, by name. They come from the configuration files.
	Handlers map[string]Handler
}

const (
	// NetworkAuto uses the network of the CNI configuration, and the runtime's own network while there is none.
	NetworkAuto = "auto"
	// NetworkCNI uses only the network of the CNI configuration. Without one the node is not ready.
	NetworkCNI = "cni"

	// DefaultNRISocket is where NRI plugins look for a runtime (NRI, pkg/api).
	DefaultNRISocket = "/var/run/nri/nri.sock"
	// NRIOff turns NRI off.
	NRIOff = "off"
)

// Given names a setting that is not its default: a flag, or the field runtimes. It is empty if there is none.
func (s Settings) Given() string {
	switch {
	case s.CRIListen != "":
		return "--cri-listen"
	case s.PodNetwork == NetworkCNI:
		return "--pod-network"
	case s.CNIConfDir != "":
		return "--cni-conf-dir"
	case s.NRISocket != "":
		return "--nri-socket"
	case len(s.Handlers) > 0:
		return "runtimes"
	}
	return ""
}

// NRI is the socket for NRI plugins; on is false if NRI is off. An agent on a default root directory serves
// DefaultNRISocket, because at most one agent of a machine has such a root. For any other root the path is empty: the
// socket is then in the runtime's own directory.
func (s Settings) NRI(defaultRoot bool) (path string, on bool) {
	switch {
	case s.NRISocket == NRIOff:
		return "", false
	case s.NRISocket == "" && defaultRoot:
		return DefaultNRISocket, true
	}
	return s.NRISocket, true
}
