package reason

import (
	"errors"
	"fmt"
)

// Reasons of a waiting or failed container, as Kubernetes spells them in ContainerStateWaiting.Reason.
const (
	PodInitializing            = "PodInitializing"
	ContainerCreating          = "ContainerCreating"
	CrashLoopBackOff           = "CrashLoopBackOff"
	ErrImagePull               = "ErrImagePull"
	ImagePullBackOff           = "ImagePullBackOff"
	ErrImageNeverPull          = "ErrImageNeverPull"
	ImageInspectError          = "ImageInspectError"
	InvalidImageName           = "InvalidImageName"
	RegistryUnavailable        = "RegistryUnavailable"
	SignatureValidationFailed  = "SignatureValidationFailed"
	CreateContainerConfigError = "CreateContainerConfigError"
	Blocked                    = "Blocked"
	PreCreateHookError         = "PreCreateHookError"
	CreateContainerError       = "CreateContainerError"
	PreStartHookError          = "PreStartHookError"
	RunContainerError          = "RunContainerError"
	PostStartHookError         = "PostStartHookError"
)

// Reasons of an event, as Kubernetes spells them.
const (
	Created                          = "Created"
	Started                          = "Started"
	Failed                           = "Failed"
	Killing                          = "Killing"
	BackOff                          = "BackOff"
	Pulling                          = "Pulling"
	Pulled                           = "Pulled"
	PullSecretMissing                = "FailedToRetrieveImagePullSecret"
	FreeDiskSpaceFailed              = "FreeDiskSpaceFailed"
	ImageGCFailed                    = "ImageGCFailed"
	InvalidDiskCapacity              = "InvalidDiskCapacity"
	InspectFailed                    = "InspectFailed"
	FailedMount                      = "FailedMount"
	FailedUnmount                    = "FailedUnMount"
	FailedBinding                    = "FailedBinding"
	ProvisioningFailed               = "ProvisioningFailed"
	ProvisioningSucceeded            = "ProvisioningSucceeded"
	VolumePermissionChangeInProgress = "VolumePermissionChangeInProgress"
	Unhealthy                        = "Unhealthy"
	Evicted                          = "Evicted"
	Preempting                       = "Preempting"
	NodeShutdown                     = "NodeShutdown"
	FailedSync                       = "FailedSync"
	FailedValidation                 = "FailedValidation"
	// FieldIgnored is of a manifest with unknown fields. It is Berth's own: the kubelet ignores them in silence.
	FieldIgnored                    = "FieldIgnored"
	FailedCreatePodSandBox          = "FailedCreatePodSandBox"
	SandboxChanged                  = "SandboxChanged"
	FailedPodSandBoxStatus          = "FailedPodSandBoxStatus"
	FailedMapVolume                 = "FailedMapVolume"
	SuccessfulMountVolume           = "SuccessfulMountVolume"
	FailedMountOnFilesystemMismatch = "FailedMountOnFilesystemMismatch"
	DeadlineExceeded                = "DeadlineExceeded"
	ExceededGracePeriod             = "ExceededGracePeriod"
	ContainerGCFailed               = "ContainerGCFailed"
	FailedKillPod                   = "FailedKillPod"
	FailedPostStartHook             = "FailedPostStartHook"
	FailedPreStopHook               = "FailedPreStopHook"
	NetworkNotReady                 = "NetworkNotReady"
	// InvalidEnvironmentVariableNames is of keys that envFrom leaves out.
	InvalidEnvironmentVariableNames = "InvalidEnvironmentVariableNames"
	FailedPodCgroup                 = "FailedCreatePodContainer"
	// ManifestsMissing and ManifestsReturned are of the node: its manifest directory disappeared, or is there again.
	ManifestsMissing  = "ManifestsMissing"
	ManifestsReturned = "ManifestsReturned"
	// These are of certificates of pods (KEP-4317), in the kubelet's words.
	CertificateDenied  = "Denied"
	CertificateOverdue = "CertificateOverdueForRefresh"
	CertificateExpired = "CertificateExpired"
	// OOMKilled is of a pod: the kernel killed one of its processes for lack of memory.
	OOMKilled = "OOMKilled"
	// ImagesRemoved is of a node that removed unused images: their file system ran full, or they were old.
	ImagesRemoved = "ImagesRemoved"
	// ContainersRemoved is of a node that removed dead containers: earlier instances of a container, or all that no pod
	// needs because a file system ran full.
	ContainersRemoved = "ContainersRemoved"
	// RotatedLogsRemoved is of a node that removed compressed logs, because a file system ran full.
	RotatedLogsRemoved = "RotatedLogsRemoved"
	// WaitsForPressure is of an evicted static pod, which starts again when the pressure of the node has ended.
	WaitsForPressure = "WaitsForPressure"
)

// Error is a failure with the reason shown to users. Error() is "reason: cause". Message() is the cause alone, because
// status and events show the reason separately.
type Error struct {
	Reason string
	Err    error
}

// New makes an Error from a format, which may use %w.
func New(reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Err: fmt.Errorf(format, args...)}
}

// Wrap gives err a reason. A nil err stays nil.
func Wrap(reason string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Reason: reason, Err: err}
}

func (e *Error) Error() string { return e.Reason + ": " + e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// Message is the cause without the reason.
func (e *Error) Message() string { return e.Err.Error() }

// Of returns the outermost reason in err's chain, or "" when there is none.
func Of(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	return ""
}

// Message returns the text to show beside Of(err): the cause of the outermost reason, or the text of err if it carries
// no reason. A nil err gives "".
func Message(err error) string {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Message()
	}
	return err.Error()
}
