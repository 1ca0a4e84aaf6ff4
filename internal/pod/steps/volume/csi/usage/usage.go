package usage

import (
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// Usage is the usage of a volume in bytes and inodes. A value that the driver does not report is nil.
type Usage struct {
	At                             time.Time
	Capacity, Available, Used      *uint64
	Inodes, InodesFree, InodesUsed *uint64
	// Abnormal is the condition of the volume. It is nil if the driver reports none, or without Options.Health.
	Abnormal *bool
}

// Of returns the usage in a driver's answer.
func Of(got *csi.NodeGetVolumeStatsResponse, now time.Time) *Usage {
	u := &Usage{At: now}
	for _, one := range got.GetUsage() {
		total, free, used := uint64(max(0, one.GetTotal())), uint64(max(0, one.GetAvailable())),
			uint64(max(0, one.GetUsed()))
		switch one.GetUnit() {
		case csi.VolumeUsage_BYTES:
			u.Capacity, u.Available, u.Used = &total, &free, &used
		case csi.VolumeUsage_INODES:
			u.Inodes, u.InodesFree, u.InodesUsed = &total, &free, &used
		case csi.VolumeUsage_UNKNOWN: // ignored
		}
	}
	return u
}
