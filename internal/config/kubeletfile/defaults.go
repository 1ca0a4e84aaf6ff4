package kubeletfile

import (
	"maps"
	"path/filepath"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logs "k8s.io/component-base/logs/api/v1"
	"k8s.io/kubelet/config/v1beta1"
)

// defaults returns the defaults of a kubelet 1.36. containerRuntimeEndpoint has none here: the agent's package
// endpoint chooses the runtime.
func defaults() *v1beta1.KubeletConfiguration {
	kc := &v1beta1.KubeletConfiguration{
		Address:                          "0.0.0.0",
		CgroupDriver:                     "cgroupfs",
		CgroupsPerQOS:                    new(true),
		ContainerLogMaxFiles:             new(int32(5)),
		ContainerLogMaxSize:              "10Mi",
		ContainerLogMaxWorkers:           new(int32(1)),
		ContainerLogMonitorInterval:      new(after(10 * time.Second)),
		ContentType:                      "application/vnd.kubernetes.protobuf",
		CPUCFSQuota:                      new(true),
		CPUCFSQuotaPeriod:                new(after(100 * time.Millisecond)),
		CPUManagerPolicy:                 "none",
		CPUManagerReconcilePeriod:        after(10 * time.Second),
		EnableControllerAttachDetach:     new(true),
		EnableDebugFlagsHandler:          new(true),
		EnableDebuggingHandlers:          new(true),
		EnableProfilingHandler:           new(true),
		EnableServer:                     new(true),
		EnableSystemLogHandler:           new(true),
		EnableSystemLogQuery:             new(false),
		EnforceNodeAllocatable:           []string{"pods"},
		EventBurst:                       100,
		EventRecordQPS:                   new(int32(50)),
		EvictionHard:                     defaultEvictionHard(),
		EvictionPressureTransitionPeriod: after(5 * time.Minute),
		FailCgroupV1:                     new(true),
		FailSwapOn:                       new(true),
		FileCheckFrequency:               after(20 * time.Second),
		HairpinMode:                      v1beta1.PromiscuousBridge,
		HealthzBindAddress:               "127.0.0.1",
		HealthzPort:                      new(int32(10248)),
		HTTPCheckFrequency:               after(20 * time.Second),
		ImageGCHighThresholdPercent:      new(int32(85)),
		ImageGCLowThresholdPercent:       new(int32(80)),
		ImageMinimumGCAge:                after(2 * time.Minute),
		IPTablesDropBit:                  new(int32(15)),
		IPTablesMasqueradeBit:            new(int32(14)),
		KubeAPIBurst:                     100,
		KubeAPIQPS:                       new(int32(50)),
		LocalStorageCapacityIsolation:    new(true),
		MakeIPTablesUtilChains:           new(true),
		MaxOpenFiles:                     1_000_000,
		MaxPods:                          110,
		MemoryManagerPolicy:              v1beta1.NoneMemoryManagerPolicy,
		MemoryReservationPolicy:          v1beta1.NoneMemoryReservationPolicy,
		MemoryThrottlingFactor:           new(0.9),
		MergeDefaultEvictionSettings:     new(false),
		NodeLeaseDurationSeconds:         40,
		NodeStatusMaxImages:              new(int32(50)),
		NodeStatusReportFrequency:        after(5 * time.Minute),
		NodeStatusUpdateFrequency:        after(10 * time.Second),
		OOMScoreAdj:                      new(int32(-999)),
		PodLogsDir:                       "/var/log/pods",
		PodPidsLimit:                     new(int64(-1)),
		Port:                             10250,
		RegisterNode:                     new(true),
		RegistryBurst:                    10,
		RegistryPullQPS:                  new(int32(5)),
		ResolverConfig:                   new("/etc/resolv.conf"),
		RuntimeRequestTimeout:            after(2 * time.Minute),
		SeccompDefault:                   new(false),
		SerializeImagePulls:              new(true),
		StreamingConnectionIdleTimeout:   after(4 * time.Hour),
		SyncFrequency:                    after(time.Minute),
		TopologyManagerPolicy:            v1beta1.NoneTopologyManagerPolicy,
		TopologyManagerScope:             v1beta1.ContainerTopologyManagerScope,
		VolumePluginDir:                  "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/",
		VolumeStatsAggPeriod:             after(time.Minute),

		ConfigMapAndSecretChangeDetectionStrategy: v1beta1.WatchChangeDetectionStrategy,
		ImagePullCredentialsVerificationPolicy:    v1beta1.NeverVerifyPreloadedImages,
	}
	defaultAccess(kc)
	kc.CrashLoopBackOff.MaxContainerRestartPeriod = new(after(300 * time.Second))
	logs.SetRecommendedLoggingConfiguration(&kc.Logging)
	return kc
}

func defaultAccess(kc *v1beta1.KubeletConfiguration) {
	kc.Authentication.Anonymous.Enabled = new(false)
	kc.Authentication.Webhook = v1beta1.KubeletWebhookAuthentication{Enabled: new(true),
		CacheTTL: after(2 * time.Minute)}
	kc.Authorization = v1beta1.KubeletAuthorization{
		Mode: v1beta1.KubeletAuthorizationModeWebhook,
		Webhook: v1beta1.KubeletWebhookAuthorization{CacheAuthorizedTTL: after(5 * time.Minute),
			CacheUnauthorizedTTL: after(30 * time.Second)},
	}
}

func after(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }

func defaultEvictionHard() map[string]string {
	return map[string]string{
		"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%", "imagefs.available": "15%",
		"imagefs.inodesFree": "5%",
	}
}

// standaloneDefaults differ from the kubelet's where a standalone agent needs it: the agent accepts the machine as it
// is, and opens only the network ports that are configured.
func standaloneDefaults(root string) *v1beta1.KubeletConfiguration {
	kc := defaults()
	kc.StaticPodPath = filepath.Join(root, "manifests")
	kc.FailSwapOn, kc.FailCgroupV1 = new(false), new(false)
	kc.Port, kc.HealthzPort = 0, new(int32(0))
	kc.Authentication.Webhook.Enabled, kc.Authorization.Mode = new(false), ""
	return kc
}

// Complete returns the configuration of the files with defaults for all fields that they leave out.
func Complete(files *v1beta1.KubeletConfiguration, root string, joined bool) *v1beta1.KubeletConfiguration {
	kc := files.DeepCopy()
	byDefault := standaloneDefaults(root)
	if joined {
		byDefault = defaults()
	}
	// These defaults depend on another field.
	if kc.NodeStatusUpdateFrequency.Duration > 0 {
		byDefault.NodeStatusReportFrequency = kc.NodeStatusUpdateFrequency
	}
	byDefault.SerializeImagePulls = new(kc.MaxParallelImagePulls == nil || *kc.MaxParallelImagePulls < 2)
	if kc.EvictionHard != nil && kc.MergeDefaultEvictionSettings != nil && *kc.MergeDefaultEvictionSettings {
		all := defaultEvictionHard()
		maps.Copy(all, kc.EvictionHard)
		kc.EvictionHard = all
	}
	values := map[string]reflect.Value{}
	eachField(reflect.ValueOf(byDefault).Elem(), "", func(path string, v reflect.Value) { values[path] = v })
	eachField(reflect.ValueOf(kc).Elem(), "", func(path string, v reflect.Value) {
		if v.IsZero() {
			v.Set(values[path])
		}
	})
	if *kc.PodPidsLimit < 0 {
		kc.PodPidsLimit = new(int64(-1))
	}
	kc.APIVersion, kc.Kind = v1beta1.SchemeGroupVersion.String(), configKind
	return kc
}

// beforeDropIns returns the defaults that a kubelet fills in before it merges drop-ins into the file of --config,
// where that changes the result. A threshold in a drop-in is then added to the default thresholds. An update frequency
// in a drop-in does not also set the report frequency.
func beforeDropIns(file *v1beta1.KubeletConfiguration) Layer {
	l := Layer{data: map[string]any{}}
	if merge := file.MergeDefaultEvictionSettings; file.EvictionHard == nil || merge != nil && *merge {
		thresholds := map[string]any{}
		for signal, value := range defaultEvictionHard() {
			if _, set := file.EvictionHard[signal]; !set {
				thresholds[signal] = value
			}
		}
		l.data["evictionHard"] = thresholds
	}
	if file.NodeStatusUpdateFrequency.Duration == 0 && file.NodeStatusReportFrequency.Duration == 0 {
		l.data["nodeStatusReportFrequency"] = defaults().NodeStatusReportFrequency.Duration.String()
	}
	return l
}
