package manifest

import (
	"path"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxMode is the largest mode of a file in a volume.
const maxMode = 0o777

func checkVolumes(c *check, at *field.Path) {
	names := map[string]bool{}
	for i := range c.pod.Spec.Volumes {
		v, at := &c.pod.Spec.Volumes[i], at.Index(i)
		c.text(at.Child("name"), v.Name, validation.IsDNS1123Label)
		if names[v.Name] && v.Name != "" {
			c.add(field.Duplicate(at.Child("name"), v.Name))
		}
		names[v.Name] = true
		c.only(at, &v.VolumeSource)
		checkVolume(c, &v.VolumeSource, at)
	}
}

// checkVolume checks the volumes that the node itself creates in detail. For other volumes it checks only the fields
// that identify them.
func checkVolume(c *check, v *corev1.VolumeSource, at *field.Path) {
	if v.HostPath != nil {
		checkHostPath(c, v.HostPath, at.Child("hostPath"))
	}
	if v.EmptyDir != nil {
		checkEmptyDir(c, v.EmptyDir, at.Child("emptyDir"))
	}
	if s := v.Secret; s != nil {
		c.text(at.Child("secret", "secretName"), s.SecretName, validation.IsDNS1123Subdomain)
		checkFiles(c, s.Items, s.DefaultMode, at.Child("secret"))
	}
	if m := v.ConfigMap; m != nil {
		c.text(at.Child("configMap", "name"), m.Name, validation.IsDNS1123Subdomain)
		checkFiles(c, m.Items, m.DefaultMode, at.Child("configMap"))
	}
	if d := v.DownwardAPI; d != nil {
		c.mode(at.Child("downwardAPI", "defaultMode"), d.DefaultMode)
		checkDownward(c, d.Items, at.Child("downwardAPI", "items"))
	}
	if v.Projected != nil {
		checkProjected(c, v.Projected, at.Child("projected"))
	}
	if p := v.PersistentVolumeClaim; p != nil {
		c.text(at.Child("persistentVolumeClaim", "claimName"), p.ClaimName, validation.IsDNS1123Subdomain)
	}
	if n := v.NFS; n != nil {
		c.present(at.Child("nfs", "server"), n.Server)
		c.absolute(at.Child("nfs", "path"), n.Path)
	}
	if i := v.ISCSI; i != nil {
		c.present(at.Child("iscsi", "targetPortal"), i.TargetPortal)
		c.present(at.Child("iscsi", "iqn"), i.IQN)
	}
	if f := v.FlexVolume; f != nil {
		c.present(at.Child("flexVolume", "driver"), f.Driver)
		for key := range f.Options {
			if strings.Contains(key, "kubernetes.io/") {
				c.invalid(at.Child("flexVolume", "options").Key(key), key, "kubernetes.io/ is reserved for the node")
			}
		}
	}
	if v.CSI != nil {
		c.present(at.Child("csi", "driver"), v.CSI.Driver)
	}
	if i := v.Image; i != nil {
		c.present(at.Child("image", "reference"), i.Reference)
		oneOf(c, at.Child("image", "pullPolicy"), i.PullPolicy, corev1.PullAlways, corev1.PullIfNotPresent,
			corev1.PullNever)
	}
	if v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate == nil {
		c.add(field.Required(at.Child("ephemeral", "volumeClaimTemplate"), ""))
	}
}

func checkHostPath(c *check, h *corev1.HostPathVolumeSource, at *field.Path) {
	c.present(at.Child("path"), h.Path)
	c.noBacksteps(at.Child("path"), h.Path)
	if h.Type != nil {
		oneOf(c, at.Child("type"), *h.Type, corev1.HostPathUnset, corev1.HostPathDirectoryOrCreate,
			corev1.HostPathDirectory,
			corev1.HostPathFileOrCreate, corev1.HostPathFile, corev1.HostPathSocket, corev1.HostPathCharDev,
			corev1.HostPathBlockDev)
	}
}

func checkEmptyDir(c *check, e *corev1.EmptyDirVolumeSource, at *field.Path) {
	if e.SizeLimit != nil && e.SizeLimit.Sign() < 0 {
		c.invalid(at.Child("sizeLimit"), e.SizeLimit.String(), "must not be negative")
	}
	if !strings.HasPrefix(string(e.Medium), string(corev1.StorageMediumHugePagesPrefix)) {
		oneOf(c, at.Child("medium"), e.Medium, corev1.StorageMediumDefault, corev1.StorageMediumMemory,
			corev1.StorageMediumHugePages)
	}
}

func checkFiles(c *check, items []corev1.KeyToPath, mode *int32, at *field.Path) {
	c.mode(at.Child("defaultMode"), mode)
	for i, item := range items {
		at := at.Child("items").Index(i)
		c.text(at.Child("key"), item.Key, validation.IsConfigMapKey)
		c.file(at.Child("path"), item.Path)
		c.mode(at.Child("mode"), item.Mode)
	}
}

func checkDownward(c *check, items []corev1.DownwardAPIVolumeFile, at *field.Path) {
	for i, item := range items {
		at := at.Index(i)
		c.file(at.Child("path"), item.Path)
		c.mode(at.Child("mode"), item.Mode)
		switch {
		case (item.FieldRef == nil) == (item.ResourceFieldRef == nil):
			c.add(field.Required(at.Child("fieldRef"), "exactly one of fieldRef and resourceFieldRef"))
		case item.FieldRef != nil:
			checkFieldRef(c, item.FieldRef, at.Child("fieldRef"), "metadata.name", "metadata.namespace", "metadata.uid",
				"metadata.labels", "metadata.annotations")
		default:
			checkResourceFieldRef(c, item.ResourceFieldRef, at.Child("resourceFieldRef"), true)
		}
	}
}

func checkProjected(c *check, p *corev1.ProjectedVolumeSource, at *field.Path) {
	c.mode(at.Child("defaultMode"), p.DefaultMode)
	for i := range p.Sources {
		s, at := &p.Sources[i], at.Child("sources").Index(i)
		c.only(at, s)
		if s.Secret != nil {
			c.text(at.Child("secret", "name"), s.Secret.Name, validation.IsDNS1123Subdomain)
			checkFiles(c, s.Secret.Items, nil, at.Child("secret"))
		}
		if s.ConfigMap != nil {
			c.text(at.Child("configMap", "name"), s.ConfigMap.Name, validation.IsDNS1123Subdomain)
			checkFiles(c, s.ConfigMap.Items, nil, at.Child("configMap"))
		}
		if s.DownwardAPI != nil {
			checkDownward(c, s.DownwardAPI.Items, at.Child("downwardAPI", "items"))
		}
		if s.ServiceAccountToken != nil {
			c.file(at.Child("serviceAccountToken", "path"), s.ServiceAccountToken.Path)
		}
	}
}

// file requires a relative path of a file inside a volume.
func (c *check) file(at *field.Path, value string) {
	c.present(at, value)
	c.relative(at, value)
	if strings.HasPrefix(value, "..") && !strings.HasPrefix(value, "../") && value != ".." {
		c.invalid(at, value, "must not start with '..'")
	}
}

func (c *check) mode(at *field.Path, mode *int32) {
	if mode != nil && (*mode < 0 || *mode > maxMode) {
		c.invalid(at, *mode, "must be between 0 and 0777 (octal), both inclusive")
	}
}

func (c *check) present(at *field.Path, value string) {
	if value == "" {
		c.add(field.Required(at, ""))
	}
}

func (c *check) absolute(at *field.Path, value string) {
	c.present(at, value)
	if value != "" && !path.IsAbs(value) {
		c.invalid(at, value, "must be an absolute path")
	}
}

// port requires a port number or the name of a port.
func (c *check) port(at *field.Path, p intstr.IntOrString) {
	if p.Type == intstr.Int {
		c.rules(at, p.IntValue(), validation.IsValidPortNum(p.IntValue()))
		return
	}
	c.rules(at, p.StrVal, validation.IsValidPortName(p.StrVal))
}

// only requires that exactly one of the pointers in the struct at choice is set.
func (c *check) only(at *field.Path, choice any) {
	v := reflect.ValueOf(choice).Elem()
	var all, set []string
	for i := range v.NumField() {
		if v.Field(i).Kind() != reflect.Pointer {
			continue
		}
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		all = append(all, name)
		if !v.Field(i).IsNil() {
			set = append(set, name)
		}
	}
	switch {
	case len(set) == 0:
		c.add(field.Required(at, "needs one of "+strings.Join(all, ", ")))
	case len(set) > 1:
		c.add(field.Forbidden(at.Child(set[1]), "cannot be set together with "+set[0]))
	}
}
