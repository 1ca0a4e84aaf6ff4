package stats

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// Volumes exports the usage of claimed volumes (kubelet_volume_stats_*), which alerts use to notice that a volume fills
// up. It implements prometheus.Collector. A claim that several pods use is exported once. A volume that cannot be
// measured is left out.
type Volumes struct {
	stats  *Stats
	descs  [6]*prometheus.Desc
	health *prometheus.Desc
}

func newTook() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "kubelet_volume_metric_collection_duration_seconds",
		Help: "Duration in seconds of measuring a volume, by how: du, statfs or block.", Buckets: prometheus.DefBuckets,
	}, []string{"metric_source"})
}

// Register registers the usage of claimed volumes.
func (s *Stats) Register(r prometheus.Registerer) error { return r.Register(NewVolumes(s)) }

// NewVolumes returns a collector that measures volumes as the summary does.
func NewVolumes(s *Stats) *Volumes {
	v := &Volumes{stats: s, health: prometheus.NewDesc("kubelet_volume_stats_health_status_abnormal",
		"1 if the driver of the volume reports an abnormal condition, 0 if it reports a normal one",
		[]string{"namespace", "persistentvolumeclaim"}, nil)}
	for i, d := range [...][2]string{
		{"capacity_bytes", "Size of the volume in bytes"}, {"available_bytes", "Free bytes of the volume"},
		{"used_bytes", "Bytes of the volume in use"},
		{"inodes", "Inodes of the volume"}, {"inodes_free", "Free inodes of the volume"},
		{"inodes_used", "Inodes of the volume in use"},
	} {
		v.descs[i] = prometheus.NewDesc("kubelet_volume_stats_"+d[0], d[1],
			[]string{"namespace", "persistentvolumeclaim"}, nil)
	}
	return v
}

// Describe implements prometheus.Collector.
func (v *Volumes) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range v.descs {
		ch <- d
	}
	ch <- v.health
	v.stats.took.Describe(ch)
}

// Collect implements prometheus.Collector.
func (v *Volumes) Collect(ch chan<- prometheus.Metric) {
	defer v.stats.took.Collect(ch)
	if v.stats.VolumePeriod < 0 {
		return
	}
	exported := map[statsapi.PVCReference]bool{}
	for _, p := range v.stats.Source.Pods() {
		for _, volume := range p.Volumes {
			if volume.Claim == nil || exported[*volume.Claim] {
				continue
			}
			exported[*volume.Claim] = true
			f, err := v.stats.volume(context.Background(), volume)
			if err != nil {
				if !gone(err) {
					v.stats.Log.Warn("cannot measure a volume, leaving it out", "pod", p.Namespace+"/"+p.Name, "volume",
						volume.Name, "err",
						err)
				}
				continue
			}
			v.collectHealth(ch, volume)
			for i, value := range []*uint64{f.CapacityBytes, f.AvailableBytes, f.UsedBytes, f.Inodes, f.InodesFree,
				f.InodesUsed} {
				if value == nil {
					continue // its driver does not report it
				}
				ch <- prometheus.MustNewConstMetric(v.descs[i], prometheus.GaugeValue, float64(*value),
					volume.Claim.Namespace, volume.Claim.Name)
			}
		}
	}
}

// collectHealth exports the condition of a volume, if its driver reports one.
func (v *Volumes) collectHealth(ch chan<- prometheus.Metric, volume Volume) {
	if v.stats.Drivers == nil {
		return
	}
	abnormal, known := v.stats.Drivers.VolumeAbnormal(volume.Path)
	if !known {
		return
	}
	value := map[bool]float64{true: 1}[abnormal]
	ch <- prometheus.MustNewConstMetric(v.health, prometheus.GaugeValue, value, volume.Claim.Namespace,
		volume.Claim.Name)
}
