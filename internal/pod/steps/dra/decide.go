package dra

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/resourceclaim"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/berth-run/berth/internal/model/pod"
)

// record is one claim of the checkpoint, with the kubelet's fields.
type record struct {
	ClaimUID    types.UID
	ClaimName   string
	Namespace   string
	PodUIDs     sets.Set[string]
	DriverState map[string]driverState
	// PreparedBoot is the boot id of the machine when all drivers had prepared the claim. The kubelet ignores the field
	// and drops it.
	PreparedBoot string `json:",omitempty"`
}

// driverState holds the devices that one driver prepared for a claim. Each driver of a claim has one, even without
// devices.
type driverState struct{ Devices []device }

// device is a driver's answer about one device. Empty RequestNames means that the device belongs to all requests.
type device struct {
	PoolName     string
	DeviceName   string
	ShareID      *types.UID
	RequestNames []string
	CDIDeviceIDs []string
}

func (r *record) key() string { return r.Namespace + "/" + r.ClaimName }

func (r *record) claim() *drapb.Claim {
	return &drapb.Claim{Namespace: r.Namespace, Uid: string(r.ClaimUID), Name: r.ClaimName}
}

func (r *record) drivers() []string { return slices.Sorted(maps.Keys(r.DriverState)) }

// clone returns a copy that can be changed while others read r.
func (r *record) clone() *record {
	c := *r
	c.PodUIDs, c.DriverState = r.PodUIDs.Clone(), map[string]driverState{}
	maps.Copy(c.DriverState, r.DriverState)
	return &c
}

// devices returns the devices of a request with their drivers. An empty request means all devices.
func (r *record) devices(request string) (all []driverDevice) {
	request = resourceclaim.BaseRequestRef(request)
	for _, driver := range r.drivers() {
		for _, d := range r.DriverState[driver].Devices {
			if request == "" || len(d.RequestNames) == 0 ||
				slices.ContainsFunc(d.RequestNames, func(n string) bool {
					return resourceclaim.BaseRequestRef(n) == request
				}) {
				all = append(all, driverDevice{driver, d})
			}
		}
	}
	return all
}

type driverDevice struct {
	driver string
	device
}

// newRecord returns the record of an allocated claim before the first call to a driver.
func newRecord(claim *resourceapi.ResourceClaim) *record {
	r := &record{ClaimUID: claim.UID, ClaimName: claim.Name, Namespace: claim.Namespace, PodUIDs: sets.New[string](),
		DriverState: map[string]driverState{}}
	for _, result := range claim.Status.Allocation.Devices.Results {
		r.DriverState[result.Driver] = driverState{}
	}
	return r
}

// need is a claim that a pod needs.
type need struct {
	// claim is the name of the ResourceClaim.
	claim string
	// owned is set if the pod must be the owner of the claim.
	owned bool
}

// needs lists the claims of a pod: the named ones, those created from templates, and the claim for extended resources
// (KEP-5004). missing describes the first claim that is not created yet. A template that needs no claim is skipped.
func needs(p *corev1.Pod) (all []need, missing string) {
	for i := range p.Spec.ResourceClaims {
		c := &p.Spec.ResourceClaims[i]
		name, owned, err := resourceclaim.Name(p, c)
		switch {
		case err != nil && c.ResourceClaimTemplateName != nil:
			return nil,
				fmt.Sprintf("the ResourceClaim of %q to be made from ResourceClaimTemplate %q", c.Name,
					*c.ResourceClaimTemplateName)
		case err != nil:
			return nil, fmt.Sprintf("a ResourceClaim for %q: %v", c.Name, err)
		case name != nil:
			all = append(all, need{*name, owned})
		}
	}
	if e := p.Status.ExtendedResourceClaimStatus; e != nil {
		all = append(all, need{e.ResourceClaimName, true})
	}
	return all, ""
}

// wants reports whether a pod has any claim.
func wants(p *corev1.Pod) bool {
	return len(p.Spec.ResourceClaims) > 0 || p.Status.ExtendedResourceClaimStatus != nil
}

// usable returns the condition that a claim must still meet before the pod can use it, "" if none. It returns an error
// if the claim belongs to another pod.
func usable(p *corev1.Pod, claim *resourceapi.ResourceClaim, n need) (lacks string, err error) {
	if n.owned {
		if err := resourceclaim.IsForPod(p, claim, true); err != nil {
			return "", fmt.Errorf("%w; next: delete that ResourceClaim, or the pod", err)
		}
	}
	switch {
	case claim.Status.Allocation == nil:
		return fmt.Sprintf("ResourceClaim %s to be allocated by the scheduler", claim.Name), nil
	case !resourceclaim.IsReservedForPod(p, claim, true):
		return fmt.Sprintf("ResourceClaim %s to be reserved for the pod (status.reservedFor), which the scheduler does",
			claim.Name), nil
	}
	return "", nil
}

// use is a claim, or one request of it, that a container may use.
type use struct {
	// name is the pod's name for the claim. It is empty for the claim for extended resources.
	name, claim, request string
}

// uses lists the claims that a container uses. missing describes the first one that does not exist yet.
func uses(p *corev1.Pod, c *corev1.Container) (all []use, missing string) {
	for _, ref := range c.Resources.Claims {
		i := slices.IndexFunc(p.Spec.ResourceClaims, func(pc corev1.PodResourceClaim) bool {
			return pc.Name == ref.Name
		})
		if i < 0 {
			return nil, fmt.Sprintf("a claim %q in spec.resourceClaims", ref.Name)
		}
		name, _, err := resourceclaim.Name(p, &p.Spec.ResourceClaims[i])
		if err != nil {
			return nil, fmt.Sprintf("the ResourceClaim of %q", ref.Name)
		}
		if name != nil {
			all = append(all, use{ref.Name, *name, ref.Request})
		}
	}
	if e := p.Status.ExtendedResourceClaimStatus; e != nil {
		for _, m := range e.RequestMappings {
			requested := c.Resources.Requests[corev1.ResourceName(m.ResourceName)]
			if m.ContainerName == c.Name && !requested.IsZero() {
				all = append(all, use{claim: e.ResourceClaimName, request: m.RequestName})
			}
		}
	}
	return all, ""
}

// containerOf returns the container with this name, nil if there is none.
func containerOf(p *corev1.Pod, name string) *corev1.Container {
	for _, c := range pod.Containers(p) {
		if c.Name == name {
			return c.Container
		}
	}
	return nil
}

// dynamicResources lists the claims of a container in the form of the PodResources API.
func dynamicResources(all []use, records map[string]*record, namespace string) (list []*podresources.DynamicResource) {
	byClaim := map[string]*podresources.DynamicResource{}
	for _, u := range all {
		r := records[namespace+"/"+u.claim]
		if r == nil {
			continue
		}
		d := byClaim[u.claim]
		if d == nil {
			d = &podresources.DynamicResource{ClaimName: r.ClaimName, ClaimNamespace: r.Namespace}
			byClaim[u.claim] = d
			list = append(list, d)
		}
		for _, dev := range r.devices(u.request) {
			c := &podresources.ClaimResource{DriverName: dev.driver, PoolName: dev.PoolName, DeviceName: dev.DeviceName,
				ShareId: (*string)(dev.ShareID)}
			for _, id := range dev.CDIDeviceIDs {
				c.CdiDevices = append(c.CdiDevices, &podresources.CDIDevice{Name: id})
			}
			if !slices.ContainsFunc(d.ClaimResources, func(o *podresources.ClaimResource) bool {
				return o.DriverName == c.DriverName && o.PoolName == c.PoolName && o.DeviceName == c.DeviceName &&
					o.GetShareId() == c.GetShareId()
			}) {
				d.ClaimResources = append(d.ClaimResources, c)
			}
		}
	}
	return list
}

// health is the last report of a driver about a device.
type health struct {
	status  corev1.ResourceHealthStatus
	message string
	// until is when the report expires.
	until time.Time
}

// deviceKey identifies a device among the devices of all drivers.
type deviceKey struct{ driver, pool, device string }

// statuses lists the health of the devices that a container may use (KEP-4680).
func statuses(all []use, records map[string]*record, namespace string, healths map[deviceKey]health,
	now time.Time) (list []corev1.ResourceStatus) {
	for _, u := range all {
		r := records[namespace+"/"+u.claim]
		if r == nil || u.name == "" {
			continue
		}
		s := corev1.ResourceStatus{Name: corev1.ResourceName("claim:" + u.name)}
		if u.request != "" {
			s.Name += corev1.ResourceName("/" + u.request)
		}
		for _, d := range r.devices(u.request) {
			h := corev1.ResourceHealth{
				ResourceID: corev1.ResourceID(strings.Join([]string{d.driver, d.PoolName, d.DeviceName}, "/")),
				Health:     corev1.ResourceHealthStatusUnknown}
			if len(d.CDIDeviceIDs) > 0 {
				h.ResourceID = corev1.ResourceID(d.CDIDeviceIDs[0])
			}
			if report, ok := healths[deviceKey{d.driver, d.PoolName, d.DeviceName}]; ok && now.Before(report.until) {
				h.Health = report.status
				if report.message != "" {
					h.Message = &report.message
				}
			}
			if !slices.ContainsFunc(s.Resources, func(o corev1.ResourceHealth) bool {
				return o.ResourceID == h.ResourceID
			}) {
				s.Resources = append(s.Resources, h)
			}
		}
		if len(s.Resources) > 0 {
			list = append(list, s)
		}
	}
	return list
}

// due returns the drivers whose slices must be removed now, and when the next one is due (zero: none). gone says since
// when each driver is away.
func due(gone map[string]time.Time, now time.Time) (drivers []string, next time.Time) {
	for _, name := range slices.Sorted(maps.Keys(gone)) {
		at := gone[name].Add(Grace)
		switch {
		case !now.Before(at):
			drivers = append(drivers, name)
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	return drivers, next
}
