package config

// honoured are the fields of KubeletConfiguration that are acted on.
func honoured() []string {
	all := []string{
		"address",
		"allowedUnsafeSysctls",
		"cgroupDriver",
		"cgroupRoot",
		"cgroupsPerQOS", // only true
		"clusterDNS",
		"clusterDomain",
		"containerLogMaxFiles",
		"containerLogMaxSize",
		"containerLogMaxWorkers", // see partly
		"containerRuntimeEndpoint",
		"cpuCFSQuota",
		"cpuCFSQuotaPeriod",
		"cpuManagerPolicy",
		"cpuManagerPolicyOptions",
		"cpuManagerReconcilePeriod", // see partly
		"crashLoopBackOff.maxContainerRestartPeriod",
		"enableServer",
		"enforceNodeAllocatable",
		"evictionHard", // see partly
		"failCgroupV1",
		"failSwapOn",
		"featureGates", // those of gates; others are told to be unknown
		"fileCheckFrequency",
		"healthzBindAddress",
		"healthzPort",
		"httpCheckFrequency",
		"imageGCHighThresholdPercent",
		"imageGCLowThresholdPercent",
		"imageMaximumGCAge",
		"imageMinimumGCAge",
		"imagePullCredentialsVerificationPolicy",
		"imageServiceEndpoint", // only that of the runtime
		"kubeReserved",
		"kubeReservedCgroup",
		"maxParallelImagePulls",
		"maxPods",
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
		"registerWithTaints", // see partly
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
		"protectKernelDefaults", "syncFrequency", "topologyManagerScope", "volumeStatsAggPeriod", // see partly
		"tracing.endpoint",
		"tracing.samplingRatePerMillion",
		"userNamespaces.idsPerPod",
	}
	for _, some := range []map[string][]string{standalone(), withoutServer()} {
		for _, paths := range some {
			all = append(all, paths...)
		}
	}
	return all
}

// partly are honoured fields that do less here than in the kubelet.
func partly() map[string]string {
	return map[string]string{
		"containerLogMaxWorkers": "bounds how many log files are compressed at the same time; rotating them " +
			"has no bound",
		"kubeletCgroups": "is the cgroup that /stats/summary tells of as the kubelet's; the agent is not " +
			"moved there: its service manager decides",
		"systemCgroups": "is the cgroup that /stats/summary tells of as misc; no process is moved there: " +
			"the service manager decides",
		"evictionHard": "memory.available and nodefs.available are kept free of pods' requests; " +
			"nothing is evicted",
		"cpuManagerReconcilePeriod": "is the time between readings of all cgroups, with cpuManagerPolicy static; " +
			"containers are moved at once when what they share changes, and a change from outside is seen " +
			"when it happens",
	}
}

// standalonePartly are those that do less without a cluster.
func standalonePartly() map[string]string {
	return map[string]string{
		"syncFrequency": "is the time between two readings of a ConfigMap or Secret with " +
			"configMapAndSecretChangeDetectionStrategy Get; a pod is looked at when something of it changes",
		"protectKernelDefaults": "true wants the kernel's settings to be a kubelet's; false leaves them alone",
		"registerWithTaints": "pods that do not tolerate a taint with the effect NoExecute are rejected, unless " +
			"they are from staticPodPath or staticPodURL; the other effects are for a scheduler",
	}
}

// standalone are honoured fields that need a cluster, under what is the case
// without one.
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

// withoutServer are honoured fields that need the HTTPS server, under what is
// the case without one. enableServer: false asks for just that.
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

// notActedOn are the other fields, under what is the case instead.
func notActedOn() map[string][]string {
	return map[string][]string{
		"a log is looked at when it is written to": {"containerLogMonitorInterval"},
		"sysctls are those in the pod":             {"defaultPodSysctls"},
		"nothing is evicted": {
			"evictionMaxPodGracePeriod", "evictionMinimumReclaim", "evictionPressureTransitionPeriod", "evictionSoft",
			"evictionSoftGracePeriod", "kernelMemcgNotification",
		},
		"it has no effect in any kubelet of this version either": {
			"hairpinMode", "iptablesDropBit", "iptablesMasqueradeBit",
		},
		"ephemeral storage is counted and not enforced": {"localStorageCapacityIsolation"},
		"use --log-format and --log-level": {
			"logging.flushFrequency", "logging.format", "logging.options.json.infoBufferSize",
			"logging.options.json.splitStream",
			"logging.options.text.infoBufferSize", "logging.options.text.splitStream", "logging.verbosity",
			"logging.vmodule",
		},
		"no chains are made":                            {"makeIPTablesUtilChains"},
		"the service manager decides (LimitNOFILE=)":    {"maxOpenFiles"},
		"the service manager decides (OOMScoreAdjust=)": {"oomScoreAdj"},
		"pulls are bounded by maxParallelImagePulls": {
			"registryBurst", "registryPullQPS",
		},
		"no metrics are hidden":       {"showHiddenMetricsForVersion"},
		"there are no volume plugins": {"volumePluginDir"},
	}
}
