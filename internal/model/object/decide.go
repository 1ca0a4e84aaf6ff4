package object

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Default sets the defaults of the API server (pkg/apis/core/v1 of Kubernetes 1.36) in place. It moves a Secret's
// stringData into data and resets the status of volumes and claims.
func Default(v Value) {
	switch o := v.(type) {
	case *corev1.Secret:
		if o.Type == "" {
			o.Type = corev1.SecretTypeOpaque
		}
		if len(o.StringData) > 0 && o.Data == nil {
			o.Data = map[string][]byte{}
		}
		for key, value := range o.StringData {
			o.Data[key] = []byte(value)
		}
		o.StringData = nil
	case *corev1.PersistentVolume:
		o.Status = corev1.PersistentVolumeStatus{Phase: corev1.VolumePending}
		if o.Spec.PersistentVolumeReclaimPolicy == "" {
			o.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
		}
		defaultMode(&o.Spec.VolumeMode)
		if h := o.Spec.HostPath; h != nil && h.Type == nil {
			h.Type = new(corev1.HostPathUnset)
		}
	case *corev1.PersistentVolumeClaim:
		o.Status = corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimPending}
		defaultMode(&o.Spec.VolumeMode)
	}
}

func defaultMode(mode **corev1.PersistentVolumeMode) {
	if *mode == nil {
		*mode = new(corev1.PersistentVolumeFilesystem)
	}
}

// Validate returns the faults that make the API server refuse an object with defaults, with the path of each field. It
// returns nil for a valid object.
func Validate(v Value) field.ErrorList {
	kind, _ := KindNamed(KeyOf(v).Kind)
	errs := checkMeta(v, kind)
	switch o := v.(type) {
	case *corev1.ConfigMap:
		errs = append(errs, checkConfigMap(o)...)
	case *corev1.Secret:
		errs = append(errs, checkSecret(o)...)
	case *corev1.PersistentVolume:
		errs = append(errs, checkVolume(&o.Spec, field.NewPath("spec"))...)
	case *corev1.PersistentVolumeClaim:
		errs = append(errs, checkClaim(&o.Spec, field.NewPath("spec"))...)
	case *nodev1.RuntimeClass:
		errs = append(errs, checkRuntimeClass(o)...)
	}
	return errs
}

func checkMeta(v Value, kind Kind) (errs field.ErrorList) {
	at := field.NewPath("metadata")
	if v.GetName() == "" && v.GetGenerateName() != "" {
		errs = append(errs, field.Required(at.Child("name"), "generateName is not supported, give the object a name"))
	} else {
		errs = append(errs, checkText(at.Child("name"), v.GetName(), validation.IsDNS1123Subdomain)...)
	}
	switch {
	case kind.Namespaced:
		errs = append(errs, checkText(at.Child("namespace"), v.GetNamespace(), validation.IsDNS1123Label)...)
	case v.GetNamespace() != "":
		errs = append(errs, field.Forbidden(at.Child("namespace"), "a "+kind.Name+" belongs to no namespace"))
	}
	errs = append(errs, metavalidation.ValidateLabels(v.GetLabels(), at.Child("labels"))...)
	return append(errs, apivalidation.ValidateAnnotations(v.GetAnnotations(), at.Child("annotations"))...)
}

// checkText requires a value that is not empty and satisfies a rule of k8s.io/apimachinery.
func checkText(at *field.Path, value string, rule func(string) []string) (errs field.ErrorList) {
	if value == "" {
		return field.ErrorList{field.Required(at, "")}
	}
	for _, message := range rule(value) {
		errs = append(errs, field.Invalid(at, value, message))
	}
	return errs
}

// keys checks the keys in the data of a ConfigMap or Secret and returns the total size of the values.
func keys[T ~string | ~[]byte](at *field.Path, data map[string]T) (size int, errs field.ErrorList) {
	for _, key := range slices.Sorted(maps.Keys(data)) {
		for _, message := range validation.IsConfigMapKey(key) {
			errs = append(errs, field.Invalid(at.Key(key), key, message))
		}
		size += len(data[key])
	}
	return size, errs
}

func checkConfigMap(o *corev1.ConfigMap) field.ErrorList {
	data, binary := field.NewPath("data"), field.NewPath("binaryData")
	size, errs := keys(data, o.Data)
	more, errs2 := keys(binary, o.BinaryData)
	errs = append(errs, errs2...)
	for _, key := range slices.Sorted(maps.Keys(o.Data)) {
		if _, twice := o.BinaryData[key]; twice {
			errs = append(errs, field.Invalid(data.Key(key), key, "duplicate of key present in binaryData"))
		}
	}
	return append(errs, checkSize(data, size+more)...)
}

// checkSize limits the data of an object (corev1.MaxSecretSize, 1 MiB).
func checkSize(at *field.Path, size int) field.ErrorList {
	if size <= corev1.MaxSecretSize {
		return nil
	}
	return field.ErrorList{field.Invalid(at, fmt.Sprintf("%d bytes", size),
		fmt.Sprintf("must have at most %d bytes together", corev1.MaxSecretSize))}
}

// checkSecret also checks the keys that the Secret's type requires. No message contains a value.
func checkSecret(o *corev1.Secret) field.ErrorList {
	at := field.NewPath("data")
	size, errs := keys(at, o.Data)
	errs = append(errs, checkSize(at, size)...)
	need := func(names ...string) {
		for _, name := range names {
			if _, there := o.Data[name]; !there {
				errs = append(errs, field.Required(at.Key(name), fmt.Sprintf("a Secret of type %s has it", o.Type)))
			}
		}
	}
	isJSON := func(name string) {
		need(name)
		if text, there := o.Data[name]; there && json.Unmarshal(text, &map[string]any{}) != nil {
			errs = append(errs, field.Invalid(at.Key(name), "<not shown>", "must be a JSON object"))
		}
	}
	switch o.Type {
	case corev1.SecretTypeServiceAccountToken:
		if o.Annotations[corev1.ServiceAccountNameKey] == "" {
			errs = append(errs,
				field.Required(field.NewPath("metadata", "annotations").Key(corev1.ServiceAccountNameKey), ""))
		}
	case corev1.SecretTypeDockercfg:
		isJSON(corev1.DockerConfigKey)
	case corev1.SecretTypeDockerConfigJson:
		isJSON(corev1.DockerConfigJsonKey)
	case corev1.SecretTypeBasicAuth:
		_, user := o.Data[corev1.BasicAuthUsernameKey]
		if _, password := o.Data[corev1.BasicAuthPasswordKey]; !user && !password {
			need(corev1.BasicAuthUsernameKey, corev1.BasicAuthPasswordKey)
		}
	case corev1.SecretTypeSSHAuth:
		need(corev1.SSHAuthPrivateKey)
	case corev1.SecretTypeTLS:
		need(corev1.TLSCertKey, corev1.TLSPrivateKeyKey)
	default: // keys that the user chooses
	}
	return errs
}

func checkRuntimeClass(o *nodev1.RuntimeClass) field.ErrorList {
	errs := checkText(field.NewPath("handler"), o.Handler, validation.IsDNS1123Label)
	if o.Overhead != nil {
		at := field.NewPath("overhead", "podFixed")
		for _, name := range slices.Sorted(maps.Keys(o.Overhead.PodFixed)) {
			if q := o.Overhead.PodFixed[name]; q.Sign() < 0 {
				errs = append(errs, field.Invalid(at.Key(string(name)), q.String(), "must not be negative"))
			}
		}
	}
	if o.Scheduling != nil {
		errs = append(errs,
			metavalidation.ValidateLabels(o.Scheduling.NodeSelector, field.NewPath("scheduling", "nodeSelector"))...)
	}
	return errs
}

func checkClaim(s *corev1.PersistentVolumeClaimSpec, at *field.Path) field.ErrorList {
	errs := checkAccess(s.AccessModes, s.VolumeMode, at)
	requests := at.Child("resources", "requests").Key(string(corev1.ResourceStorage))
	if q, ok := s.Resources.Requests[corev1.ResourceStorage]; !ok {
		errs = append(errs, field.Required(requests, ""))
	} else if q.Sign() <= 0 {
		errs = append(errs, field.Invalid(requests, q.String(), "must be greater than zero"))
	}
	if s.StorageClassName != nil && *s.StorageClassName != "" {
		errs = append(errs,
			checkText(at.Child("storageClassName"), *s.StorageClassName, validation.IsDNS1123Subdomain)...)
	}
	if s.Selector != nil {
		errs = append(errs,
			metavalidation.ValidateLabelSelector(s.Selector, metavalidation.LabelSelectorValidationOptions{},
				at.Child("selector"))...)
	}
	if s.VolumeName != "" {
		errs = append(errs, checkText(at.Child("volumeName"), s.VolumeName, validation.IsDNS1123Subdomain)...)
	}
	return errs
}

func checkAccess(modes []corev1.PersistentVolumeAccessMode, mode *corev1.PersistentVolumeMode,
	at *field.Path) (errs field.ErrorList) {
	known := []corev1.PersistentVolumeAccessMode{corev1.ReadOnlyMany, corev1.ReadWriteMany, corev1.ReadWriteOnce,
		corev1.ReadWriteOncePod}
	if len(modes) == 0 {
		errs = append(errs, field.Required(at.Child("accessModes"), "at least 1 access mode is required"))
	}
	for _, m := range modes {
		if !slices.Contains(known, m) {
			errs = append(errs, field.NotSupported(at.Child("accessModes"), m, known))
		}
	}
	if len(modes) > 1 && slices.Contains(modes, corev1.ReadWriteOncePod) {
		errs = append(errs,
			field.Forbidden(at.Child("accessModes"), "may not use ReadWriteOncePod with other access modes"))
	}
	kinds := []corev1.PersistentVolumeMode{corev1.PersistentVolumeBlock, corev1.PersistentVolumeFilesystem}
	if mode != nil && !slices.Contains(kinds, *mode) {
		errs = append(errs, field.NotSupported(at.Child("volumeMode"), *mode, kinds))
	}
	return errs
}

func checkVolume(s *corev1.PersistentVolumeSpec, at *field.Path) field.ErrorList {
	errs := checkAccess(s.AccessModes, s.VolumeMode, at)
	capacity := at.Child("capacity")
	if q, ok := s.Capacity[corev1.ResourceStorage]; !ok || len(s.Capacity) > 1 {
		errs = append(errs, field.Required(capacity.Key(string(corev1.ResourceStorage)), "storage, and nothing else"))
	} else if q.Sign() <= 0 {
		errs = append(errs,
			field.Invalid(capacity.Key(string(corev1.ResourceStorage)), q.String(), "must be greater than zero"))
	}
	policies := []corev1.PersistentVolumeReclaimPolicy{corev1.PersistentVolumeReclaimDelete,
		corev1.PersistentVolumeReclaimRecycle, corev1.PersistentVolumeReclaimRetain}
	if !slices.Contains(policies, s.PersistentVolumeReclaimPolicy) {
		errs = append(errs,
			field.NotSupported(at.Child("persistentVolumeReclaimPolicy"), s.PersistentVolumeReclaimPolicy, policies))
	}
	if s.StorageClassName != "" {
		errs = append(errs,
			checkText(at.Child("storageClassName"), s.StorageClassName, validation.IsDNS1123Subdomain)...)
	}
	if h := s.HostPath; h != nil {
		errs = append(errs, checkPath(h.Path, at.Child("hostPath", "path"))...)
	}
	if l := s.Local; l != nil {
		errs = append(errs, checkPath(l.Path, at.Child("local", "path"))...)
	}
	if n := s.NFS; n != nil {
		if n.Server == "" {
			errs = append(errs, field.Required(at.Child("nfs", "server"), ""))
		}
		if !path.IsAbs(n.Path) {
			errs = append(errs, field.Invalid(at.Child("nfs", "path"), n.Path, "must be an absolute path"))
		}
	}
	if n := sources(&s.PersistentVolumeSource); n != 1 {
		errs = append(errs, field.Required(at, fmt.Sprintf("exactly one volume type, there are %d", n)))
	}
	return errs
}

func checkPath(name string, at *field.Path) field.ErrorList {
	switch {
	case name == "":
		return field.ErrorList{field.Required(at, "")}
	case slices.Contains(strings.Split(name, "/"), ".."):
		return field.ErrorList{field.Invalid(at, name, "must not contain '..'")}
	}
	return nil
}

// sources counts the volume types that are set.
func sources(s *corev1.PersistentVolumeSource) int {
	set := 0
	text, err := json.Marshal(s)
	var fields map[string]json.RawMessage
	if err == nil && json.Unmarshal(text, &fields) == nil {
		set = len(fields)
	}
	return set
}

// ValidateUpdate returns the faults that make the API server refuse a change of an object: changes of fields that are
// immutable, always or because the object says so.
func ValidateUpdate(was, now Value) (errs field.ErrorList) {
	fixed := func(name string, same bool, why string) {
		if !same {
			errs = append(errs, field.Forbidden(field.NewPath(name), why))
		}
	}
	const marked, created = "field is immutable when `immutable` is set", "field is immutable"
	same := equality.Semantic.DeepEqual
	switch o := was.(type) {
	case *corev1.ConfigMap:
		if n, ok := now.(*corev1.ConfigMap); ok && isSet(o.Immutable) {
			fixed("immutable", isSet(n.Immutable), marked)
			fixed("data", same(o.Data, n.Data), marked)
			fixed("binaryData", same(o.BinaryData, n.BinaryData), marked)
		}
	case *corev1.Secret:
		n, ok := now.(*corev1.Secret)
		fixed("type", ok && o.Type == n.Type, created)
		if ok && isSet(o.Immutable) {
			fixed("immutable", isSet(n.Immutable), marked)
			fixed("data", same(o.Data, n.Data), marked)
		}
	case *corev1.PersistentVolume:
		if n, ok := now.(*corev1.PersistentVolume); ok {
			fixed("spec", same(o.Spec.PersistentVolumeSource, n.Spec.PersistentVolumeSource),
				"the volume's source is immutable after creation")
			fixed("spec.volumeMode", same(o.Spec.VolumeMode, n.Spec.VolumeMode), created)
		}
	case *corev1.PersistentVolumeClaim:
		if n, ok := now.(*corev1.PersistentVolumeClaim); ok {
			fixed("spec", same(claimShape(&o.Spec, &n.Spec), &n.Spec),
				"spec is immutable after creation except resources.requests")
			less := n.Spec.Resources.Requests.Storage().Cmp(*o.Spec.Resources.Requests.Storage()) < 0
			fixed("spec.resources.requests.storage", !less, "field can not be less than previous value")
		}
	case *nodev1.RuntimeClass:
		n, ok := now.(*nodev1.RuntimeClass)
		fixed("handler", ok && o.Handler == n.Handler, created)
	}
	return errs
}

// claimShape returns was with the fields that may change taken from now: the size, and the volume's name if was has
// none.
func claimShape(was, now *corev1.PersistentVolumeClaimSpec) *corev1.PersistentVolumeClaimSpec {
	s := was.DeepCopy()
	s.Resources.Requests = now.Resources.Requests
	if s.VolumeName == "" {
		s.VolumeName = now.VolumeName
	}
	return s
}

func isSet(flag *bool) bool { return flag != nil && *flag }

// Same reports whether two objects of one name have the same content in a manifest.
func Same(a, b Value) bool {
	return equality.Semantic.DeepEqual(bare(a), bare(b))
}

// bare returns an object without the fields that the table adds.
func bare(v Value) Value {
	c, _ := v.DeepCopyObject().(Value) // every API object is a Value
	c.SetUID("")
	c.SetCreationTimestamp(metav1.Time{})
	return c
}
