package printer

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/berth-run/berth/internal/cli/terminal"
	"github.com/berth-run/berth/internal/model/object"
)

// Objects writes a table of objects of one kind. It shows no value of a Secret.
func Objects(w io.Writer, kind object.Kind, items []object.Value, o Options, now time.Time) error {
	t := NewTable(w,
		o.columns("NAMESPACE", append(append([]string{"NAME"}, objectColumns(kind.Name)...), "AGE"), nil)...)
	t.StyleText("STATUS", claimStyle)
	t.StyleText("REMOVAL", func(string) terminal.Style { return terminal.Waiting })
	for _, v := range items {
		cells := append(append([]string{v.GetName()}, objectCells(v, now)...), age(v.GetCreationTimestamp(), now))
		t.Row(o.columns(v.GetNamespace(), cells, nil)...)
	}
	return t.Flush()
}

func objectColumns(kind string) []string {
	switch kind {
	case object.ConfigMap:
		return []string{"DATA"}
	case object.Secret:
		return []string{"TYPE", "DATA"}
	case object.PersistentVolumeClaim:
		return []string{"STATUS", "VOLUME", "REQUEST", "ACCESS MODES", "STORAGECLASS"}
	case object.PersistentVolume:
		return []string{"CAPACITY", "ACCESS MODES", "RECLAIM POLICY", "STATUS", "CLAIM", "STORAGECLASS",
			"REMOVAL"}
	case object.RuntimeClass:
		return []string{"HANDLER"}
	}
	return nil
}

func objectCells(v object.Value, now time.Time) []string {
	switch o := v.(type) {
	case *corev1.ConfigMap:
		return []string{fmt.Sprint(len(o.Data) + len(o.BinaryData))}
	case *corev1.Secret:
		return []string{string(o.Type), fmt.Sprint(len(o.Data))}
	case *corev1.PersistentVolumeClaim:
		class := ""
		if o.Spec.StorageClassName != nil {
			class = *o.Spec.StorageClassName
		}
		return []string{string(o.Status.Phase), o.Spec.VolumeName, o.Spec.Resources.Requests.Storage().String(),
			accessModes(o.Spec.AccessModes), class}
	case *corev1.PersistentVolume:
		claim := ""
		if r := o.Spec.ClaimRef; r != nil {
			claim = cmp.Or(r.Namespace, "default") + "/" + r.Name
		}
		return []string{o.Spec.Capacity.Storage().String(), accessModes(o.Spec.AccessModes),
			string(o.Spec.PersistentVolumeReclaimPolicy), string(o.Status.Phase), claim, o.Spec.StorageClassName,
			removal(o, now)}
	case *nodev1.RuntimeClass:
		return []string{o.Handler}
	}
	return nil
}

// removal says when the volume of a deleted claim is removed. A volume whose claim is gone, but was not deleted, is
// kept.
func removal(v *corev1.PersistentVolume, now time.Time) string {
	at, err := time.Parse(time.RFC3339, v.Annotations[object.AnnotationRemoval])
	switch {
	case err == nil && at.After(now):
		return "in " + duration.HumanDuration(at.Sub(now))
	case err == nil:
		return "now"
	case v.Status.Phase == corev1.VolumeReleased:
		return "kept"
	}
	return ""
}

// accessModes returns kubectl's abbreviations of access modes.
func accessModes(modes []corev1.PersistentVolumeAccessMode) string {
	short := map[corev1.PersistentVolumeAccessMode]string{
		corev1.ReadWriteOnce: "RWO", corev1.ReadOnlyMany: "ROX", corev1.ReadWriteMany: "RWX",
		corev1.ReadWriteOncePod: "RWOP",
	}
	all := make([]string, len(modes))
	for i, m := range modes {
		all[i] = short[m]
	}
	return strings.Join(all, ",")
}
