package source

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/source/cluster"
	"github.com/berth-run/berth/internal/pod/source/content"
	"github.com/berth-run/berth/internal/pod/source/contest"
)

// claims records what the origins and the cluster want, and decides who gets a name or a UID that several of them want.
// The lock of merge guards it.
type claims struct {
	cluster *cluster.Set
	pods    *contest.Contest[slot, *pod.Pod]
	items   *contest.Contest[slot, *content.Item]
}

// slot is a name or a UID, which one pod or object has at a time. The other field is empty.
type slot struct {
	name object.Key
	uid  types.UID
}

// The ranks in the contests. A manifest's pod comes before one of the cluster, and the cluster's object before one of a
// manifest (Cluster).
const (
	podOfManifest, podOfCluster       = 0, 1
	objectOfCluster, objectOfManifest = 0, 1
)

func podKey(name types.NamespacedName) object.Key {
	return object.Key{Kind: "Pod", Namespace: name.Namespace, Name: name.Name}
}

func newClaims(node string, ignored pod.Ignored) claims {
	return claims{cluster: cluster.New(node, ignored), pods: contest.New[slot, *pod.Pod](),
		items: contest.New[slot, *content.Item]()}
}

// putPods replaces the pods of an origin. It returns the pods that may have won or lost by that.
func (c *claims) putPods(origin string, pods []*pod.Pod) (touched []*pod.Pod) {
	all := make([]contest.Claim[slot, *pod.Pod], len(pods))
	for i, p := range pods {
		all[i] = podClaim(p, podOfManifest)
	}
	return c.pods.Put(origin, all...)
}

// putCluster takes over what has changed in the set of the cluster's pods, as putPods does. Each of them is an origin
// in the contest, so that a change of one does not go through all.
func (c *claims) putCluster() (touched []*pod.Pod) {
	for _, change := range c.cluster.Changes() {
		origin := cluster.Origin + "/" + string(change.UID)
		if change.Pod == nil {
			touched = append(touched, c.pods.Put(origin)...)
		} else {
			touched = append(touched, c.pods.Put(origin, podClaim(change.Pod, podOfCluster))...)
		}
	}
	return touched
}

func podClaim(p *pod.Pod, rank int) contest.Claim[slot, *pod.Pod] {
	return contest.Claim[slot, *pod.Pod]{Value: p, Keys: []slot{{name: podKey(p.Key())}, {uid: p.UID}}, Rank: rank}
}

// putObjects replaces the objects of an origin. It returns the objects that may have won or lost by that.
func (c *claims) putObjects(origin string, items []*content.Item) (touched []*content.Item) {
	all := make([]contest.Claim[slot, *content.Item], len(items))
	for n, i := range items {
		all[n] = itemClaim(i, objectOfManifest)
	}
	return c.items.Put(origin, all...)
}

// setObject sets the cluster's object for key, or removes it if v is nil.
func (c *claims) setObject(key object.Key, v object.Value) {
	origin := cluster.Origin + "/" + key.String()
	if v == nil {
		c.items.Put(origin)
	} else {
		c.items.Put(origin, itemClaim(&content.Item{Value: v, Origin: cluster.Origin}, objectOfCluster))
	}
}

func itemClaim(i *content.Item, rank int) contest.Claim[slot, *content.Item] {
	return contest.Claim[slot, *content.Item]{Value: i, Keys: []slot{{name: i.Key()}}, Rank: rank}
}

// wants reports whether an origin wants a pod of a name, NAMESPACE/NAME.
func (c *claims) wants(origin, name string) bool {
	return c.pods.Has(origin, slot{name: podKey(content.ParseName(name))})
}

// supplied reports whether an origin wants an object of that name.
func (c *claims) supplied(key object.Key) bool {
	return slices.ContainsFunc(c.items.Claims(slot{name: key}),
		func(i *content.Item) bool { return i.Origin != cluster.Origin })
}

// problems returns the pods and objects that did not get their names or UIDs, and the pods of the cluster that cannot
// run here.
func (c *claims) problems() (all []Problem) {
	for _, l := range c.pods.Lost() {
		all = append(all, refusal(l))
	}
	for _, l := range c.items.Lost() {
		all = append(all, objectRefusal(l))
	}
	for _, r := range c.cluster.Refusals() {
		all = append(all,
			Problem{Origin: cluster.Origin, Pod: r.Name, Err: reason.Wrap(reason.FailedValidation, r.Err)})
	}
	return all
}
