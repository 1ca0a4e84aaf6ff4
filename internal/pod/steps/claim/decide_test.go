package claim

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/object"
)

var node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1",
	Labels: map[string]string{corev1.LabelHostname: "node1"}}}

func newVolume(name, size string, edit ...func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"disk": name}},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(size)},
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce,
				corev1.ReadOnlyMany},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: "/srv/" + name}},
		},
	}
	for _, e := range edit {
		e(v)
	}
	return v
}

func newClaim(name string, edit ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-of-" + name)},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	for _, e := range edit {
		e(c)
	}
	return c
}

func class(name string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = &name }
}

func on(host string) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) {
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{
			Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname,
					Operator: corev1.NodeSelectorOpIn, Values: []string{host}}},
			}}}}
	}
}

func keptFor(name string) func(*corev1.PersistentVolume) {
	return func(v *corev1.PersistentVolume) {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "default", Name: name}
	}
}

func TestChoose(t *testing.T) {
	block := corev1.PersistentVolumeBlock
	inClass := func(v *corev1.PersistentVolume) { v.Spec.StorageClassName = "fast" }
	isBlock := func(v *corev1.PersistentVolume) { v.Spec.VolumeMode = &block }
	named := func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "a" }
	tests := []struct {
		name    string
		claim   *corev1.PersistentVolumeClaim
		volumes []*corev1.PersistentVolume
		taken   map[string]types.NamespacedName
		want    choice
	}{
		{"the smallest that fits", newClaim("c"),
			[]*corev1.PersistentVolume{newVolume("a", "3Gi"), newVolume("b", "2Gi"), newVolume("c", "500Mi")}, nil,
			choice{volume: newVolume("b", "2Gi")}},
		{"the first by name of equals", newClaim("c"),
			[]*corev1.PersistentVolume{newVolume("b", "2Gi"), newVolume("a", "2Gi")}, nil,
			choice{volume: newVolume("a", "2Gi")}},
		{"the one that is kept for it", newClaim("c"),
			[]*corev1.PersistentVolume{newVolume("a", "1Gi"), newVolume("b", "9Gi", keptFor("c"))}, nil,
			choice{volume: newVolume("b", "9Gi", keptFor("c"))}},
		{"not one that is kept for another", newClaim("c"),
			[]*corev1.PersistentVolume{newVolume("a", "1Gi", keptFor("x"))}, nil, choice{make: true}},
		{"bound to another claim", newClaim("c", class("")), []*corev1.PersistentVolume{newVolume("a", "1Gi")},
			map[string]types.NamespacedName{"a": {Namespace: "default", Name: "x"}},
			choice{reason: reason.FailedBinding,
				why: "no persistent volumes available for this claim (1 bound to another claim) and no storage " +
					"class is set"}},
		{"of its class only", newClaim("c", class("fast")),
			[]*corev1.PersistentVolume{newVolume("a", "1Gi"), newVolume("b", "2Gi", inClass)}, nil,
			choice{volume: newVolume("b", "2Gi", inClass)}},
		{"without a class, no volume of a class", newClaim("c"),
			[]*corev1.PersistentVolume{newVolume("b", "2Gi", inClass)},
			nil, choice{make: true}},
		{"an unknown class", newClaim("c", class("slow")), []*corev1.PersistentVolume{newVolume("a", "1Gi")}, nil,
			choice{reason: reason.ProvisioningFailed,
				why: `no persistent volumes available for this claim (1 of another storage class), and ` +
					`storageclass.storage.k8s.io "slow" not found: this node makes volumes of the class ` +
					`local-path only`}},
		{"of this node", newClaim("c"),
			[]*corev1.PersistentVolume{newVolume("a", "1Gi", on("node2")), newVolume("b", "2Gi", on("node1"))}, nil,
			choice{volume: newVolume("b", "2Gi", on("node1"))}},
		{"by selector", newClaim("c", func(c *corev1.PersistentVolumeClaim) {
			c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"disk": "b"}}
		}),
			[]*corev1.PersistentVolume{newVolume("a", "1Gi"), newVolume("b", "2Gi")}, nil,
			choice{volume: newVolume("b", "2Gi")}},
		{"by a selector that selects none", newClaim("c", func(c *corev1.PersistentVolumeClaim) {
			c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"disk": "x"}}
		}),
			[]*corev1.PersistentVolume{newVolume("a", "1Gi")}, nil, choice{reason: reason.ProvisioningFailed,
				why: "no persistent volumes available for this claim (1 not selected by the claim's selector), and " +
					"none is made for a claim with a selector"}},
		{"with all access modes", newClaim("c", class(""), func(c *corev1.PersistentVolumeClaim) {
			c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
		}),
			[]*corev1.PersistentVolume{newVolume("a", "1Gi")}, nil,
			choice{reason: reason.FailedBinding,
				why: "no persistent volumes available for this claim (1 without an access mode of the claim) and no " +
					"storage class is set"}},
		{"a block device", newClaim("c", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = &block }),
			[]*corev1.PersistentVolume{newVolume("a", "1Gi"), newVolume("b", "2Gi", isBlock)}, nil,
			choice{volume: newVolume("b", "2Gi", isBlock)}},
		{"no block device is made", newClaim("c", func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = &block }),
			nil, nil,
			choice{reason: reason.ProvisioningFailed,
				why: "no persistent volumes available for this claim, and local-path makes no block volumes"}},
		{"by name", newClaim("c", named), []*corev1.PersistentVolume{newVolume("b", "1Gi"), newVolume("a", "2Gi")}, nil,
			choice{volume: newVolume("a", "2Gi")}},
		{"by a name that does not exist", newClaim("c", named), []*corev1.PersistentVolume{newVolume("b", "1Gi")}, nil,
			choice{missing: "a"}},
		{"by a name that does not fit", newClaim("c", named), []*corev1.PersistentVolume{newVolume("a", "1Mi")}, nil,
			choice{reason: reason.FailedBinding, why: `volume "a" cannot be bound: it is too small`}},
		{"made for the class", newClaim("c", class(Class)), nil, nil, choice{make: true}},
		{"a policy that is not one",
			newClaim("c", func(c *corev1.PersistentVolumeClaim) {
				c.Annotations = map[string]string{AnnotationReclaim: "Keep"}
			}), nil, nil,
			choice{reason: reason.ProvisioningFailed,
				why: `the annotation berth.run/reclaim-policy is "Keep": use Delete or Retain`}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := choose(test.claim, test.volumes, test.taken, node)
			if d := cmp.Diff(test.want, got, cmp.AllowUnexported(choice{})); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestUpdateMarksADeletedClaim(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	earlier := now.Add(-time.Minute)
	file := &object.Origin{Path: "/m/c.yaml", Dir: object.Directory{Inode: 1}}
	for _, tt := range []struct {
		name string
		b    Binding
		s    sight
		want Binding
	}{
		{"there", Binding{}, sight{exists: true, origin: file}, Binding{Origin: file}},
		{"there again", Binding{Released: &earlier, Deleted: &earlier}, sight{exists: true, origin: file},
			Binding{Origin: file}},
		{"source not there", Binding{Origin: file}, sight{}, Binding{Origin: file, Released: &now}},
		{"manifest removed", Binding{Origin: file, Released: &earlier}, sight{fate: object.Removed},
			Binding{Origin: file, Released: &earlier, Deleted: &now}},
		{"manifest removed, another one faulty", Binding{Origin: file}, sight{fate: object.Unsure},
			Binding{Origin: file, Released: &now}},
		{"manifest without the claim", Binding{Origin: file}, sight{fate: object.Present},
			Binding{Origin: file, Released: &now}},
		{"manifest back, and faulty", Binding{Origin: file, Released: &earlier, Deleted: &earlier},
			sight{fate: object.Present}, Binding{Origin: file, Released: &earlier}},
		{"deleted, then the source is gone", Binding{Origin: file, Released: &earlier, Deleted: &earlier}, sight{},
			Binding{Origin: file, Released: &earlier, Deleted: &earlier}},
		{"deleted by a user", Binding{Deleted: &earlier}, sight{}, Binding{Released: &now, Deleted: &earlier}},
		{"removed, in use", Binding{Origin: file, Users: []types.UID{"u"}}, sight{fate: object.Removed},
			Binding{Origin: file, Users: []types.UID{"u"}, Deleted: &now}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if d := cmp.Diff(tt.want, update(tt.b, tt.s, now)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestEndDecidesAboutABinding(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	before, recently := now.Add(-retention), now.Add(-time.Second)
	deleted := func(v *corev1.PersistentVolume) {
		v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimDelete
	}
	kept, mine := newVolume("v", "1Gi"), newVolume("v", "1Gi", deleted)
	type answer struct {
		Fate fate
		Next time.Time
	}
	there := sight{volume: true}
	tests := []struct {
		name string
		b    Binding
		s    sight
		want answer
	}{
		{"claimed", Binding{Volume: mine, Made: true}, sight{exists: true, volume: true}, answer{Fate: keep}},
		{"used", Binding{Volume: mine, Made: true, Deleted: &before, Users: []types.UID{"u"}}, there,
			answer{Fate: keep}},
		{"not deleted", Binding{Volume: mine, Made: true, Released: &before}, there, answer{Fate: keep}},
		{"deleted now", Binding{Volume: mine, Made: true, Released: &before, Deleted: &now}, there,
			answer{keep, now.Add(retention)}},
		{"used until recently", Binding{Volume: mine, Made: true, Released: &recently, Deleted: &before}, there,
			answer{keep, recently.Add(retention)}},
		{"over", Binding{Volume: mine, Made: true, Released: &before, Deleted: &before}, there, answer{Fate: remove}},
		{"over, a manifest is faulty", Binding{Volume: mine, Made: true, Released: &before, Deleted: &before},
			sight{volume: true, fate: object.Unsure}, answer{Fate: keep}},
		{"retained", Binding{Volume: kept, Made: true, Released: &before, Deleted: &before}, there, answer{Fate: keep}},
		{"retained, and removed by hand", Binding{Volume: kept, Made: true, Released: &before}, sight{},
			answer{Fate: forget}},
		{"of a manifest", Binding{Volume: mine, Released: &before, Deleted: &before}, there, answer{Fate: keep}},
		{"of a manifest that is gone", Binding{Volume: mine, Released: &before}, sight{}, answer{Fate: keep}},
		{"of a manifest that is gone, deleted", Binding{Volume: mine, Released: &before, Deleted: &before}, sight{},
			answer{Fate: forget}},
		{"ephemeral", Binding{Volume: mine, Made: true, Owner: "u", Released: &now}, there, answer{Fate: remove}},
		{"ephemeral of a manifest's volume", Binding{Volume: mine, Owner: "u", Released: &now}, there,
			answer{Fate: forget}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got answer
			got.Fate, got.Next = end(&test.b, test.s, retention, now)
			if d := cmp.Diff(test.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}
