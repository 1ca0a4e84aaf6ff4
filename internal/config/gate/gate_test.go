package gate

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubelet/config/v1beta1"
)

func TestRead(t *testing.T) {
	for gate, want := range map[string]Disabled{
		"ContainerCheckpoint":                {Checkpoint: true},
		"HostnameOverride":                   {HostnameOverride: true},
		"KubeletEnsureSecretPulledImages":    {ImageSecrets: true},
		"NodeDeclaredFeatures":               {DeclaredFeatures: true},
		"PodReadyToStartContainersCondition": {StartCondition: true},
		"ResourceHealthStatus":               {ResourceHealth: true},
		"ResourceHealthStatusMessage":        {ResourceHealthMessage: true},

		"ClusterTrustBundleProjection":                     {TrustBundles: true},
		"KubeletServiceAccountTokenForCredentialProviders": {TokenPlugins: true},
		"PreventStaticPodAPIReferences":                    {OwnReferences: true},

		"EnvFiles":                             {Fields: Fields{EnvFiles: true}},
		"ContainerRestartRules":                {Fields: Fields{RestartRules: true}},
		"RestartAllContainersOnContainerExits": {Fields: Fields{RestartAll: true}},
		"ContainerStopSignals":                 {Fields: Fields{StopSignals: true}},
		"DRAExtendedResource":                  {Fields: Fields{ExtendedClaims: true}},

		"InPlacePodVerticalScalingInitContainers": {Resources: Resources{ResizeInit: true}},
		"InPlacePodLevelResourcesVerticalScaling": {Resources: Resources{ResizePod: true}},
		"PodLevelResources":                       {Resources: Resources{PodLevel: true}},
		"PodLevelResourceManagers":                {Resources: Resources{PodHolds: true}},

		"ExtendWebSocketsToKubelet":          {Server: Server{WebSockets: true}},
		"PodLogsQuerySplitStreams":           {Server: Server{LogStreams: true}},
		"ReloadKubeletClientCAFile":          {Server: Server{ClientCA: true}},
		"ReloadKubeletServerCertificateFile": {Server: Server{OwnPair: true}},

		"KubeletSeparateDiskGC":                          {Storage: Storage{SeparateDisk: true}},
		"LocalStorageCapacityIsolationFSQuotaMonitoring": {Storage: Storage{Quotas: true}},
	} {
		for on, want := range map[bool]Disabled{true: {}, false: want} {
			kc := &v1beta1.KubeletConfiguration{FeatureGates: map[string]bool{gate: on}}
			if diff := cmp.Diff(want, Read(kc)); diff != "" {
				t.Errorf("%s: %t: %s", gate, on, diff)
			}
		}
	}
}

func TestFaults(t *testing.T) {
	second := metav1.Duration{Duration: time.Second}
	kc := v1beta1.KubeletConfiguration{
		ShutdownGracePeriod:              second,
		ShutdownGracePeriodByPodPriority: []v1beta1.ShutdownGracePeriodByPodPriority{{Priority: 1}},
		CrashLoopBackOff:                 v1beta1.CrashLoopBackOffConfig{MaxContainerRestartPeriod: &second},
		ServerTLSBootstrap:               true,
		CPUManagerPolicyOptions: map[string]string{"full-pcpus-only": "true", "align-by-socket": "true",
			"distribute-cpus-across-numa": "true"},
	}
	for gate, want := range map[string][]string{
		"":                                       nil,
		"GracefulNodeShutdown":                   {"shutdownGracePeriod", "shutdownGracePeriodByPodPriority"},
		"KubeletCrashLoopBackOffMax":             {"crashLoopBackOff.maxContainerRestartPeriod"},
		"GracefulNodeShutdownBasedOnPodPriority": {"shutdownGracePeriodByPodPriority"},
		"RotateKubeletServerCertificate":         {"serverTLSBootstrap"},
		"CPUManagerPolicyAlphaOptions":           {"cpuManagerPolicyOptions[align-by-socket]"},
		"CPUManagerPolicyBetaOptions":            {"cpuManagerPolicyOptions[distribute-cpus-across-numa]"},
	} {
		kc.FeatureGates = map[string]bool{gate: false}
		var got []string
		for _, err := range Faults(&kc) {
			got = append(got, err.Field)
			if wanted := "needs the feature gate " + gate + ": true"; err.Detail != wanted {
				t.Errorf("%s: %q, want %q", gate, err.Detail, wanted)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s off: %s", gate, diff)
		}
	}
}
