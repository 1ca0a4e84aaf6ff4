package agentflag

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/cli/command"
)

// kubelets adds a next step to the error for a flag that the kubelet has and the agent does not.
func kubelets(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		next := fmt.Sprintf("see %q", cmd.CommandPath()+" --help")
		if e, ok := errors.AsType[*pflag.NotExistError](err); ok {
			if instead := instead(e.GetSpecifiedName()); instead != "" {
				next = instead
			}
		}
		return client.Next(command.FlagError(err), next)
	})
}

func instead(flag string) string {
	if field, ok := fields()[flag]; ok {
		return "write " + field + " into the file of --config, or into a .conf file of --config-dir"
	}
	return gone()[flag]
}

// gone returns the next step for flags of current or earlier kubelets without a configuration field.
func gone() map[string]string {
	const log = "use --log-level"
	return map[string]string{
		"v": log, "vmodule": log,
		"logging-format":      "use --log-format",
		"log-flush-frequency": "leave it out: each line of the log is written at once",
		"pod-infra-container-image": "leave it out: the sandbox image is the runtime's, and kubelets " +
			"since 1.35 do not take it either",
		"container-runtime": "leave it out: kubelets since 1.27 do not take it either; " +
			"containerRuntimeEndpoint in the file of --config says which runtime is meant",
		"network-plugin": "leave it out: the network is the runtime's, and kubelets since " +
			"1.24 do not take it either",
		"experimental-mounter-path": "leave it out: mounts are made by the agent itself",
		"experimental-allocatable-ignore-eviction": "leave it out, and write evictionHard with values of 0% into the " +
			"file of --config if nothing is to be kept free",
	}
}

// fields maps kubelet flags to the fields of KubeletConfiguration that replace them. The kubelet calls all of these
// flags deprecated.
func fields() map[string]string {
	return map[string]string{
		"address": "address", "allowed-unsafe-sysctls": "allowedUnsafeSysctls",
		"anonymous-auth":                               "authentication.anonymous.enabled",
		"authentication-token-webhook":                 "authentication.webhook.enabled",
		"authentication-token-webhook-cache-ttl":       "authentication.webhook.cacheTTL",
		"authorization-mode":                           "authorization.mode",
		"authorization-webhook-cache-authorized-ttl":   "authorization.webhook.cacheAuthorizedTTL",
		"authorization-webhook-cache-unauthorized-ttl": "authorization.webhook.cacheUnauthorizedTTL",
		"cgroup-driver":                                "cgroupDriver", "cgroup-root": "cgroupRoot",
		"cgroups-per-qos": "cgroupsPerQOS", "client-ca-file": "authentication.x509.clientCAFile",
		"cluster-dns": "clusterDNS", "cluster-domain": "clusterDomain",
		"container-log-max-files": "containerLogMaxFiles", "container-log-max-size": "containerLogMaxSize",
		"container-runtime-endpoint": "containerRuntimeEndpoint", "contention-profiling": "enableContentionProfiling",
		"cpu-cfs-quota": "cpuCFSQuota", "cpu-cfs-quota-period": "cpuCFSQuotaPeriod",
		"cpu-manager-policy": "cpuManagerPolicy", "cpu-manager-policy-options": "cpuManagerPolicyOptions",
		"cpu-manager-reconcile-period":    "cpuManagerReconcilePeriod",
		"enable-controller-attach-detach": "enableControllerAttachDetach",
		"enable-debugging-handlers":       "enableDebuggingHandlers", "enable-server": "enableServer",
		"enforce-node-allocatable": "enforceNodeAllocatable", "event-burst": "eventBurst",
		"event-qps": "eventRecordQPS", "eviction-hard": "evictionHard",
		"eviction-max-pod-grace-period":       "evictionMaxPodGracePeriod",
		"eviction-minimum-reclaim":            "evictionMinimumReclaim",
		"eviction-pressure-transition-period": "evictionPressureTransitionPeriod", "eviction-soft": "evictionSoft",
		"eviction-soft-grace-period": "evictionSoftGracePeriod", "fail-cgroupv1": "failCgroupV1",
		"fail-swap-on": "failSwapOn", "feature-gates": "featureGates",
		"file-check-frequency": "fileCheckFrequency", "hairpin-mode": "hairpinMode",
		"healthz-bind-address": "healthzBindAddress", "healthz-port": "healthzPort",
		"http-check-frequency": "httpCheckFrequency", "image-gc-high-threshold": "imageGCHighThresholdPercent",
		"image-gc-low-threshold": "imageGCLowThresholdPercent", "image-service-endpoint": "imageServiceEndpoint",
		"kernel-memcg-notification": "kernelMemcgNotification", "kube-api-burst": "kubeAPIBurst",
		"kube-api-content-type": "contentType", "kube-api-qps": "kubeAPIQPS",
		"kube-reserved": "kubeReserved", "kube-reserved-cgroup": "kubeReservedCgroup",
		"kubelet-cgroups": "kubeletCgroups", "local-storage-capacity-isolation": "localStorageCapacityIsolation",
		"make-iptables-util-chains": "makeIPTablesUtilChains", "manifest-url": "staticPodURL",
		"manifest-url-header": "staticPodURLHeader", "max-open-files": "maxOpenFiles",
		"max-pods": "maxPods", "memory-manager-policy": "memoryManagerPolicy",
		"minimum-image-ttl-duration": "imageMinimumGCAge", "node-status-max-images": "nodeStatusMaxImages",
		"node-status-update-frequency": "nodeStatusUpdateFrequency", "oom-score-adj": "oomScoreAdj",
		"pod-cidr": "podCIDR", "pod-manifest-path": "staticPodPath",
		"pod-max-pids": "podPidsLimit", "pods-per-core": "podsPerCore",
		"port": "port", "protect-kernel-defaults": "protectKernelDefaults",
		"provider-id": "providerID", "qos-reserved": "qosReserved",
		"read-only-port": "readOnlyPort", "register-node": "registerNode",
		"register-with-taints": "registerWithTaints", "registry-burst": "registryBurst",
		"registry-qps": "registryPullQPS", "reserved-cpus": "reservedSystemCPUs",
		"reserved-memory": "reservedMemory", "resolv-conf": "resolvConf",
		"rotate-certificates": "rotateCertificates", "rotate-server-certificates": "serverTLSBootstrap",
		"runonce": "runOnce", "runtime-request-timeout": "runtimeRequestTimeout",
		"seccomp-default": "seccompDefault", "serialize-image-pulls": "serializeImagePulls",
		"streaming-connection-idle-timeout": "streamingConnectionIdleTimeout", "sync-frequency": "syncFrequency",
		"system-cgroups": "systemCgroups", "system-reserved": "systemReserved",
		"system-reserved-cgroup": "systemReservedCgroup", "tls-cert-file": "tlsCertFile",
		"tls-cipher-suites": "tlsCipherSuites", "tls-curve-preferences": "tlsCurvePreferences",
		"tls-min-version": "tlsMinVersion", "tls-private-key-file": "tlsPrivateKeyFile",
		"topology-manager-policy":         "topologyManagerPolicy",
		"topology-manager-policy-options": "topologyManagerPolicyOptions",
		"topology-manager-scope":          "topologyManagerScope", "volume-plugin-dir": "volumePluginDir",
		"volume-stats-agg-period": "volumeStatsAggPeriod",
	}
}
