package claim

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/model/object"
)

// boundClaim and boundVolume are bound by a control plane.
func boundClaim(edit func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	c := newClaim("data")
	c.UID, c.ResourceVersion, c.Spec.VolumeName, c.Status.Phase = "claim", "7", "pv", corev1.ClaimBound
	if edit != nil {
		edit(c)
	}
	return c
}

func boundVolume(edit func(*corev1.PersistentVolume)) *corev1.PersistentVolume {
	v := newVolume("pv", "1Gi")
	v.ResourceVersion, v.Spec.ClaimRef = "8", &corev1.ObjectReference{Namespace: "default", Name: "data", UID: "claim"}
	if edit != nil {
		edit(v)
	}
	return v
}

// currentLabels are the labels of the Node in the cluster.
type currentLabels struct{}

func (currentLabels) Labels() map[string]string { return node.Labels }

// joined are the claims of a node of a cluster whose API server has answered for every object.
func (m *machine) joined(t *testing.T) *Claims {
	t.Helper()
	synced := make(chan struct{})
	close(synced)
	return New(Config{
		Root: m.root, Objects: m.objects, Cluster: object.Joined(m.objects, func(object.Key) bool { return true }),
		Synced: synced, Origins: m, Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1"}},
		Labels: currentLabels{}, Pods: m, Events: silent{}, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
}

func TestBoundChecksAClaimOfTheCluster(t *testing.T) {
	onlyOn := func(name string) *corev1.VolumeNodeAffinity {
		return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: corev1.LabelHostname,
				Operator: corev1.NodeSelectorOpIn, Values: []string{name}}},
		}}}}
	}
	ephemeral := corev1.VolumeSource{
		Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{}}}
	named := func(owner types.UID) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) {
			c.Name, c.OwnerReferences = "pod-data",
				[]metav1.OwnerReference{{Kind: "Pod", Name: "pod", UID: owner, Controller: new(true)}}
		}
	}
	tests := map[string]struct {
		source corev1.VolumeSource
		claim  *corev1.PersistentVolumeClaim
		volume *corev1.PersistentVolume
		err    string
	}{
		"bound": {claimed("data"), boundClaim(nil),
			boundVolume(func(v *corev1.PersistentVolume) { v.Spec.NodeAffinity = onlyOn("node1") }), ""},
		"pending": {claimed("data"), boundClaim(func(c *corev1.PersistentVolumeClaim) {
			c.Spec.VolumeName, c.Status.Phase = "", corev1.ClaimPending
		}), nil, `PVC default/data has non-bound phase ("Pending") or empty pvc.Spec.VolumeName ("")`},
		"no claim":  {claimed("data"), nil, nil, "waiting for PersistentVolumeClaim default/data"},
		"no volume": {claimed("data"), boundClaim(nil), nil, "waiting for PersistentVolume pv"},
		"another's": {claimed("data"), boundClaim(nil),
			boundVolume(func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID = "old" }),
			"PersistentVolume pv is bound to the claim default/data with the UID old, not to this claim with " +
				"the UID claim"},
		"nobody's": {claimed("data"), boundClaim(nil),
			boundVolume(func(v *corev1.PersistentVolume) { v.Spec.ClaimRef = nil }),
			"PersistentVolume pv is not bound to any claim (claimRef)"},
		"of another node": {claimed("data"), boundClaim(nil),
			boundVolume(func(v *corev1.PersistentVolume) { v.Spec.NodeAffinity = onlyOn("node2") }),
			"PersistentVolume pv is for another node (nodeAffinity)"},
		"being deleted": {claimed("data"),
			boundClaim(func(c *corev1.PersistentVolumeClaim) { c.DeletionTimestamp = new(metav1.Now()) }),
			boundVolume(nil), "PVC default/data is being deleted"},
		"ephemeral": {ephemeral, boundClaim(named("u")), boundVolume(nil), ""},
		"ephemeral, another": {ephemeral, boundClaim(named("v")), boundVolume(nil),
			`PVC "default/pod-data" was not created for pod "default/pod" (pod is not owner)`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			if test.claim != nil {
				m.objects.Put(object.KeyOf(test.claim), test.claim)
			}
			if test.volume != nil {
				m.objects.Put(object.KeyOf(test.volume), test.volume)
			}
			got, err := m.joined(t).Bound(t.Context(), newPod("u"),
				&corev1.Volume{Name: "data", VolumeSource: test.source})
			_, waits := object.Waits(err)
			switch {
			case test.err == "" && (err != nil || got != test.volume):
				t.Errorf("%v, %v", got, err)
			case test.err != "" && (err == nil || err.Error() != test.err || !waits):
				t.Errorf("got %v, waits %v, want %s", err, waits, test.err)
			}
		})
	}
}

func TestReadWriteOncePodClaimOfTheCluster(t *testing.T) {
	m := newMachine(t, boundClaim(func(c *corev1.PersistentVolumeClaim) {
		c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
	}), boundVolume(nil))
	c := m.joined(t)
	use(t, c, "u", claimed("data"))
	use(t, c, "u", claimed("data"))
	v := &corev1.Volume{Name: "data", VolumeSource: claimed("data")}
	_, err := c.Bound(t.Context(), newPod("v"), v)
	if _, lacks := errors.AsType[*object.Lacking](err); !lacks {
		t.Errorf("a second pod: %v", err)
	}
	if err := c.Released("u"); err != nil {
		t.Fatal(err)
	}
	use(t, c, "v", claimed("data"))
}

// The node binds no claim of the control plane, and a pod of the cluster cannot use a claim of a manifest.
func TestClaimsOfClusterAreNotBoundHere(t *testing.T) {
	m := newMachine(t,
		boundClaim(func(c *corev1.PersistentVolumeClaim) {
			c.Spec.VolumeName, c.Status.Phase = "", corev1.ClaimPending
		}), newVolume("pv", "2Gi"))
	c := m.joined(t)
	if next := passed(t, c); !next.IsZero() || len(c.bindings) > 0 {
		t.Errorf("bindings %v, next pass %v", c.bindings, next)
	}
	static := newPod("s")
	static.Annotations = map[string]string{"kubernetes.io/config.source": "file"}
	_, err := c.Bound(t.Context(), static, &corev1.Volume{Name: "data", VolumeSource: claimed("data")})
	if _, missing := errors.AsType[*object.Missing](err); !missing {
		t.Errorf("a pod of a manifest: %v", err)
	}
	if rows, _ := c.Rows(); rows[object.Key{Kind: object.PersistentVolumeClaim, Namespace: "default",
		Name: "data"}] != nil {
		t.Error("the cluster's claim has a status of ours")
	}
}
