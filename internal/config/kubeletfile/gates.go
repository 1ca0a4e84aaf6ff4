package kubeletfile

import "slices"

// Gates returns the feature gates that have an effect here, and whether their feature is on if they are not set. This
// is the kubelet's default in Kubernetes 1.36, except for onHere.
func Gates() map[string]bool {
	all := map[string]bool{
		"ContainerCheckpoint":                              true,
		"ContainerRestartRules":                            true,
		"CPUManagerPolicyBetaOptions":                      true,
		"CSIVolumeHealth":                                  false,
		"DisableCPUQuotaWithExclusiveCPUs":                 true,
		"DRAExtendedResource":                              true,
		"EnvFiles":                                         true,
		"ExtendWebSocketsToKubelet":                        true,
		"GracefulNodeShutdown":                             true,
		"GracefulNodeShutdownBasedOnPodPriority":           true,
		"HostnameOverride":                                 true,
		"InPlacePodLevelResourcesVerticalScaling":          true,
		"InPlacePodVerticalScalingInitContainers":          true,
		"KubeletCrashLoopBackOffMax":                       true,
		"KubeletEnsureSecretPulledImages":                  true,
		"KubeletSeparateDiskGC":                            true,
		"KubeletServiceAccountTokenForCredentialProviders": true,
		"MemoryQoS":                                        false,
		"NodeDeclaredFeatures":                             true,
		"PodCertificateRequest":                            false,
		"PodLevelResources":                                true,
		"PodReadyToStartContainersCondition":               true,
		"PreventStaticPodAPIReferences":                    true,
		"QOSReserved":                                      false,
		"ReloadKubeletClientCAFile":                        true,
		"ReloadKubeletServerCertificateFile":               true,
		"ResourceHealthStatus":                             true,
		"ResourceHealthStatusMessage":                      true,
		"RestartAllContainersOnContainerExits":             true,
		"RotateKubeletServerCertificate":                   true,
	}
	for _, gate := range onHere() {
		all[gate] = true
	}
	return all
}

// onHere returns the feature gates that are off by default in the kubelet. Here their features are on unless the gate
// is false. Only a pod or a setting that names the feature notices it, or the feature measures the same faster.
func onHere() []string {
	return []string{"ClusterTrustBundleProjection", "ContainerStopSignals", "CPUManagerPolicyAlphaOptions",
		"LocalStorageCapacityIsolationFSQuotaMonitoring", "PodLevelResourceManagers", "PodLogsQuerySplitStreams"}
}

// withoutOptions returns the feature gates that guard no option in Kubernetes 1.36. They change nothing in a kubelet
// either.
func withoutOptions() []string {
	return []string{"TopologyManagerPolicyAlphaOptions", "TopologyManagerPolicyBetaOptions"}
}

// gateWarning returns why a gate has no effect, or "".
func gateWarning(gate string) string {
	_, known := Gates()[gate]
	switch {
	case known:
		return ""
	case slices.Contains(withoutOptions(), gate):
		return "has no effect: it guards no option in Kubernetes 1.36"
	}
	return "has no effect: there is no such feature gate here"
}
