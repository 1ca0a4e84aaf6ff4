package pressure

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// settleTime is how long a victim may take to end after its grace period, and then how long the runtime may take to
// remove its containers and to free their layers. The kubelet waits as long for the end of an evicted pod.
const settleTime = 30 * time.Second

// account is the space that victims and removed containers will still free. Until it is free, no other pod ends.
//
// A victim frees its space in three steps. Its containers end and its volumes are removed. Then the agent removes its
// dead containers. Some time later the runtime frees their writable layers. Each step has a bound of settleTime, so
// that a pod or a runtime that hangs does not keep the node short of space.
type account struct {
	victims map[types.UID]debt
	// volumes and layers are the times when the space of removed volumes and containers is free, or given up.
	volumes, layers time.Time
	// unused says that layers of removed containers use space until the runtime frees them.
	unused bool
}

// debt is the space of a victim that is not free yet.
type debt struct {
	stage stage
	until time.Time // the end of this stage is waited for until then
}

// stage is a part of the end of a victim.
type stage int

const (
	// ends: containers run, or volumes are there.
	ends stage = iota
	// over: only logs and dead containers are left.
	over
	// removed: only logs are left.
	removed
)

func newAccount() account { return account{victims: map[types.UID]debt{}} }

// add adds a pod that was evicted now.
func (a *account) add(uid types.UID, grace time.Duration, now time.Time) {
	a.victims[uid] = debt{ends, now.Add(grace + settleTime)}
}

// review finds how far the victims have ended. Whoever has removed their containers, the layers are unused then.
func (a *account) review(at func(types.UID) stage, now time.Time) {
	for uid, v := range a.victims {
		stage := at(uid)
		if v.stage == ends && stage != ends {
			v = debt{over, now.Add(settleTime)}
			a.victims[uid] = v
			a.volumes = now.Add(diskPending)
		}
		if stage == removed {
			delete(a.victims, uid)
			a.leave(now)
		}
	}
}

// dead reports whether a victim has ended and its dead containers wait for their removal.
func (a *account) dead(now time.Time) bool {
	for _, v := range a.victims {
		if v.stage == over && now.Before(v.until) {
			return true
		}
	}
	return false
}

// leave records that a removed container has left a layer.
func (a *account) leave(now time.Time) {
	if !a.unused {
		a.unused, a.layers = true, now.Add(settleTime)
	}
}

// freed records that the runtime has freed the layers of all removed containers.
func (a *account) freed(now time.Time) { a.unused, a.layers = false, now.Add(diskPending) }

// later records that the runtime frees these layers by itself.
func (a *account) later(now time.Time) { a.unused, a.layers = false, now.Add(settleTime) }

// owes reports whether space will still become free on a file system, which has writable layers or not.
func (a *account) owes(layers bool, now time.Time) bool {
	for _, v := range a.victims {
		if (layers || v.stage == ends) && now.Before(v.until) {
			return true
		}
	}
	return now.Before(a.volumes) || layers && now.Before(a.layers)
}
