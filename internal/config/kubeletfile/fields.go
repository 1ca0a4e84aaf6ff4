package kubeletfile

// supported returns the fields of KubeletConfiguration that have an effect.
func supported() []string {
	all := []string{
		"address",
		"allowedUnsafeSysctls",
		"cgroupDriver", "cgroupRoot",
		"cgroupsPerQOS", // only true
		"clusterDNS",
		"clusterDomain",
		"containerLogMaxFiles",
		"containerLogMaxSize",
		"containerLogMaxWorkers", // see limited
		"containerRuntimeEndpoint",
		"cpuCFSQuota",
		"cpuCFSQuotaPeriod",
		"cpuManagerPolicy",
		"cpuManagerPolicyOptions",
		"cpuManagerReconcilePeriod", // see limited
		"crashLoopBackOff.maxContainerRestartPeriod",
		"enableServer",
		"enforceNodeAllocatable",
		"evictionHard", "evictionMaxPodGracePeriod", "evictionMinimumReclaim", "evictionPressureTransitionPeriod",
		"evictionSoft", "evictionSoftGracePeriod",
		"failCgroupV1",
		"failSwapOn",
		"featureGates", // only the gates of func Gates; others give a Warning
		"fileCheckFrequency",
		"healthzBindAddress",
		"healthzPort",
		"httpCheckFrequency",
		"imageGCHighThresholdPercent",
		"imageGCLowThresholdPercent",
		"imageMaximumGCAge",
		"imageMinimumGCAge",
		"imagePullCredentialsVerificationPolicy",
		"imageServiceEndpoint", // only the runtime's
		"kubeReserved", "kubeReservedCgroup",
		"localStorageCapacityIsolation",
		"makeIPTablesUtilChains", // see limited
		"maxParallelImagePulls", "maxPods",
		"memoryManagerPolicy",
		"memoryReservationPolicy",
		"memorySwap.swapBehavior",
		"memoryThrottlingFactor",
		"mergeDefaultEvictionSettings",
		"podCIDR",
		"podLogsDir",
		"podPidsLimit",
		"podsPerCore",
		"preloadedImagesVerificationAllowlist",
		"qosReserved",
		"readOnlyPort",
		"registerWithTaints", // see limited
		"reservedMemory",
		"reservedSystemCPUs",
		"resolvConf",
		"runOnce", // refused, as by the kubelet
		"runtimeRequestTimeout",
		"seccompDefault",
		"serializeImagePulls",
		"shutdownGracePeriod", "shutdownGracePeriodByPodPriority", "shutdownGracePeriodCriticalPods",
		"singleProcessOOMKill",
		"staticPodPath",
		"staticPodURL",
		"staticPodURLHeader",
		"systemReserved",
		"systemReservedCgroup",
		"topologyManagerPolicy",
		"topologyManagerPolicyOptions",
		"protectKernelDefaults", "syncFrequency", "topologyManagerScope", "volumeStatsAggPeriod", // see limited
		"tracing.endpoint",
		"tracing.samplingRatePerMillion",
		"userNamespaces.idsPerPod", "volumePluginDir",
	}
	for _, some := range []map[string][]string{standalone(), withoutServer()} {
		for _, paths := range some {
			all = append(all, paths...)
		}
	}
	return all
}

// limited returns the supported fields that do less here than in the kubelet.
func limited() map[string]string {
	return map[string]string{
		"containerLogMaxWorkers": "bounds how many log files are compressed at the same time; rotating them " +
			"has no bound",
		"kubeletCgroups": "is the cgroup that /stats/summary reports as the kubelet's; the agent is not " +
			"moved there: its service manager decides that",
		"systemCgroups": "is the cgroup that /stats/summary reports as misc; no process is moved there: " +
			"the service manager decides that",
		"makeIPTablesUtilChains": "true makes the rule that protects the machine's loopback addresses, in nftables " +
			"if the kernel has it; the chains KUBE-IPTABLES-HINT and KUBE-FIREWALL are made on a node of a cluster",
		"cpuManagerReconcilePeriod": "is the time between readings of all cgroups, with cpuManagerPolicy static; " +
			"containers move at once when the shared CPUs change, and a change from outside is noticed at once",
	}
}

// limitedStandalone returns the supported fields that do less without a cluster.
func limitedStandalone() map[string]string {
	return map[string]string{
		"syncFrequency": "is the time between two readings of a ConfigMap or Secret with " +
			"configMapAndSecretChangeDetectionStrategy Get; pods are reconciled when they change",
		"protectKernelDefaults": "true requires the kernel parameters that the kubelet needs; false does not " +
			"change them",
		"registerWithTaints": "pods that do not tolerate a taint with the effect NoExecute are rejected, unless " +
			"they are from staticPodPath or staticPodURL; the other effects are for a scheduler",
	}
}

// standalone returns the supported fields that need a cluster, grouped by why they have no effect without one.
func standalone() map[string][]string {
	return map[string][]string{
		"there is no API server to talk to without --kubeconfig": {
			"configMapAndSecretChangeDetectionStrategy", "contentType", "enableControllerAttachDetach", "eventBurst",
			"eventRecordQPS",
			"kubeAPIBurst", "kubeAPIQPS", "nodeLeaseDurationSeconds", "nodeStatusMaxImages",
			"nodeStatusReportFrequency",
			"nodeStatusUpdateFrequency", "providerID", "registerNode", "rotateCertificates", "serverTLSBootstrap",
		},
	}
}

// withoutServer returns the supported fields that need the HTTPS server, grouped by why they have no effect without
// it. enableServer: false turns the server off.
func withoutServer() map[string][]string {
	return map[string][]string{
		"there is no HTTPS server: it needs --kubeconfig, or port with authentication.x509.clientCAFile; commands " +
			"use the agent's socket": {
			"authentication.anonymous.enabled", "authentication.webhook.cacheTTL", "authentication.webhook.enabled",
			"authentication.x509.clientCAFile", "authorization.mode", "authorization.webhook.cacheAuthorizedTTL",
			"authorization.webhook.cacheUnauthorizedTTL", "enableContentionProfiling", "enableDebugFlagsHandler",
			"enableDebuggingHandlers", "enableProfilingHandler", "enableSystemLogHandler", "enableSystemLogQuery",
			"kubeletCgroups", "port", "streamingConnectionIdleTimeout", "systemCgroups", "tlsCertFile",
			"tlsCipherSuites", "tlsCurvePreferences",
			"tlsMinVersion", "tlsPrivateKeyFile",
		},
	}
}

// withoutEffect returns the accepted fields that change nothing, grouped by the behaviour users get instead.
func withoutEffect() map[string][]string {
	return map[string][]string{
		"a log's size is checked whenever it is written to": {"containerLogMonitorInterval"},
		"only the sysctls in the pod's own spec are set":    {"defaultPodSysctls"},
		"the kernel's notifications are always used":        {"kernelMemcgNotification"},
		"it has no effect in any kubelet of this version either": {
			"hairpinMode", "iptablesDropBit", "iptablesMasqueradeBit",
		},
		"use --log-format and --log-level": {
			"logging.flushFrequency", "logging.format", "logging.options.json.infoBufferSize",
			"logging.options.json.splitStream",
			"logging.options.text.infoBufferSize", "logging.options.text.splitStream", "logging.verbosity",
			"logging.vmodule",
		},
		"the service manager sets it (LimitNOFILE=)":    {"maxOpenFiles"},
		"the service manager sets it (OOMScoreAdjust=)": {"oomScoreAdj"},
		"maxParallelImagePulls limits the pulls": {
			"registryBurst", "registryPullQPS",
		},
		"no metrics are hidden": {"showHiddenMetricsForVersion"},
	}
}
