package gate

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubelet/config/v1beta1"
)

// Disabled are the features whose feature gates are false. Every feature is on if its gate is not set.
type Disabled struct {
	Checkpoint            bool // ContainerCheckpoint
	HostnameOverride      bool // HostnameOverride
	ImageSecrets          bool // KubeletEnsureSecretPulledImages: a pod may use any image that is present
	DeclaredFeatures      bool // NodeDeclaredFeatures
	StartCondition        bool // PodReadyToStartContainersCondition
	ResourceHealth        bool // ResourceHealthStatus
	ResourceHealthMessage bool // ResourceHealthStatusMessage
	TrustBundles          bool // ClusterTrustBundleProjection
	TokenPlugins          bool // KubeletServiceAccountTokenForCredentialProviders
	OwnReferences         bool // PreventStaticPodAPIReferences: pods of manifests get the cluster's objects
	Fields                Fields
	Resources             Resources
	Server                Server
	Storage               Storage
}

// Fields are the fields of pods that the node ignores.
type Fields struct {
	EnvFiles       bool // EnvFiles: fileKeyRef
	RestartRules   bool // ContainerRestartRules: restartPolicy of app containers, and restartPolicyRules
	RestartAll     bool // RestartAllContainersOnContainerExits: the action of that name, and its condition
	StopSignals    bool // ContainerStopSignals: stopSignal
	ExtendedClaims bool // DRAExtendedResource: extendedResourceClaimStatus
}

// Resources are features of resources.
type Resources struct {
	ResizeInit bool // InPlacePodVerticalScalingInitContainers
	ResizePod  bool // InPlacePodLevelResourcesVerticalScaling
	PodLevel   bool // PodLevelResources
	PodHolds   bool // PodLevelResourceManagers
}

// Server are features of the HTTPS server.
type Server struct {
	WebSockets bool // ExtendWebSocketsToKubelet
	LogStreams bool // PodLogsQuerySplitStreams
	ClientCA   bool // ReloadKubeletClientCAFile
	OwnPair    bool // ReloadKubeletServerCertificateFile
}

// Storage are features of local storage.
type Storage struct {
	// SeparateDisk is KubeletSeparateDiskGC: writable layers count as if they lay beside the images.
	SeparateDisk bool
	// Quotas is LocalStorageCapacityIsolationFSQuotaMonitoring: the files of emptyDirs are measured one by one.
	Quotas bool
}

// Read returns the features that the configuration switches off.
func Read(kc *v1beta1.KubeletConfiguration) Disabled {
	return Disabled{
		Checkpoint:            off(kc, "ContainerCheckpoint"),
		HostnameOverride:      off(kc, "HostnameOverride"),
		ImageSecrets:          off(kc, "KubeletEnsureSecretPulledImages"),
		DeclaredFeatures:      off(kc, "NodeDeclaredFeatures"),
		StartCondition:        off(kc, "PodReadyToStartContainersCondition"),
		ResourceHealth:        off(kc, "ResourceHealthStatus"),
		ResourceHealthMessage: off(kc, "ResourceHealthStatusMessage"),
		TrustBundles:          off(kc, "ClusterTrustBundleProjection"),
		TokenPlugins:          off(kc, "KubeletServiceAccountTokenForCredentialProviders"),
		OwnReferences:         off(kc, "PreventStaticPodAPIReferences"),
		Fields: Fields{
			EnvFiles:       off(kc, "EnvFiles"),
			RestartRules:   off(kc, "ContainerRestartRules"),
			RestartAll:     off(kc, "RestartAllContainersOnContainerExits"),
			StopSignals:    off(kc, "ContainerStopSignals"),
			ExtendedClaims: off(kc, "DRAExtendedResource"),
		},
		Resources: Resources{
			ResizeInit: off(kc, "InPlacePodVerticalScalingInitContainers"),
			ResizePod:  off(kc, "InPlacePodLevelResourcesVerticalScaling"),
			PodLevel:   off(kc, "PodLevelResources"),
			PodHolds:   off(kc, "PodLevelResourceManagers"),
		},
		Server: Server{
			WebSockets: off(kc, "ExtendWebSocketsToKubelet"),
			LogStreams: off(kc, "PodLogsQuerySplitStreams"),
			ClientCA:   off(kc, "ReloadKubeletClientCAFile"),
			OwnPair:    off(kc, "ReloadKubeletServerCertificateFile"),
		},
		Storage: Storage{
			SeparateDisk: off(kc, "KubeletSeparateDiskGC"),
			Quotas:       off(kc, "LocalStorageCapacityIsolationFSQuotaMonitoring"),
		},
	}
}

// optionGates returns the gates of options of cpuManagerPolicyOptions. The other options of the CPU manager, and all of
// the topology manager, are stable in Kubernetes 1.36 and need no gate.
func optionGates() map[string]string {
	const alpha, beta = "CPUManagerPolicyAlphaOptions", "CPUManagerPolicyBetaOptions"
	return map[string]string{"align-by-socket": alpha, "distribute-cpus-across-cores": alpha,
		"distribute-cpus-across-numa": beta}
}

// Faults returns an error for each field of the files that needs a gate that is off.
func Faults(files *v1beta1.KubeletConfiguration) (errs field.ErrorList) {
	needs := func(path string, value any, gates ...string) {
		for _, gate := range gates {
			if off(files, gate) {
				errs = append(errs,
					field.Invalid(field.NewPath(path), value, fmt.Sprintf("needs the feature gate %s: true", gate)))
			}
		}
	}
	if d := files.ShutdownGracePeriod.Duration; d > 0 {
		needs("shutdownGracePeriod", d.String(), "GracefulNodeShutdown")
	}
	if all := files.ShutdownGracePeriodByPodPriority; len(all) > 0 {
		needs("shutdownGracePeriodByPodPriority", all, "GracefulNodeShutdown",
			"GracefulNodeShutdownBasedOnPodPriority")
	}
	if d := files.CrashLoopBackOff.MaxContainerRestartPeriod; d != nil {
		needs("crashLoopBackOff.maxContainerRestartPeriod", d.Duration.String(), "KubeletCrashLoopBackOffMax")
	}
	if files.ServerTLSBootstrap {
		needs("serverTLSBootstrap", true, "RotateKubeletServerCertificate")
	}
	for _, name := range slices.Sorted(maps.Keys(files.CPUManagerPolicyOptions)) {
		if gate, gated := optionGates()[name]; gated {
			needs("cpuManagerPolicyOptions["+name+"]", files.CPUManagerPolicyOptions[name], gate)
		}
	}
	return errs
}

// off reports whether the configuration switches off a feature that is on by default.
func off(kc *v1beta1.KubeletConfiguration, name string) bool {
	on, set := kc.FeatureGates[name]
	return set && !on
}
