package stats

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"time"

	"github.com/opencontainers/cgroups"

	"github.com/berth-run/berth/internal/base/usage"
	"github.com/berth-run/berth/internal/node/stats/stall"
)

// podSample is a pod and its usage.
type podSample struct {
	Pod
	sample
	containers []containerSample
	network    []usage.Traffic
	work       work // of its containers; without a first process and its limit
}

type containerSample struct {
	Container
	sample
	work work
}

// scan samples all pods. With full it also reads their processes and networks. It leaves out pods that ended meanwhile;
// the error joins all other failures.
func (s *Stats) scan(what cgroups.Controller) (pods []podSample, err error) {
	var errs []error
	for _, p := range s.Source.Pods() {
		one, err := s.scanPod(p, what)
		if err != nil && !gone(err) {
			errs = append(errs, err)
		}
		if one.Stats != nil {
			pods = append(pods, one)
		}
	}
	return pods, errors.Join(errs...)
}

func (s *Stats) scanPod(p Pod, what cgroups.Controller) (one podSample, err error) {
	one = podSample{Pod: p}
	if one.sample, err = usage.Read(p.Group, what, s.Now()); err != nil {
		return one, err
	}
	var errs []error
	inside := 0 // the first process found in a container of the pod
	for _, c := range p.Containers {
		sampled, err := usage.Read(c.Group, what, s.Now())
		if err != nil {
			if !gone(err) {
				errs = append(errs, err)
			}
			continue
		}
		var w work
		if what == usage.Full {
			w = workOf(s.Host, c.Group)
		}
		if inside == 0 {
			inside = w.first
		}
		one.work.processes += w.processes
		one.work.files, one.work.sockets = one.work.files+w.files, one.work.sockets+w.sockets
		one.containers = append(one.containers, containerSample{c, sampled, w})
	}
	if inside != 0 && !p.HostNetwork {
		if one.network, err = usage.Network(s.Host, inside); err != nil && !gone(err) {
			errs = append(errs, err)
		}
	}
	return one, errors.Join(errs...)
}

// root samples the whole machine. It skips processes, which the root cgroup of version 1 does not count. Where the root
// cgroup has no pressure stall information, it uses the machine's.
func (s *Stats) root(what cgroups.Controller) (sample, error) {
	g := s.Root
	g.Dirs = maps.Clone(g.Dirs)
	delete(g.Dirs, "pids")
	root, err := usage.Read(g, what, s.Now())
	if err != nil {
		return root, err
	}
	for name, at := range map[string]**cgroups.PSIStats{
		"cpu": &root.CpuStats.PSI, "memory": &root.MemoryStats.PSI, "io": &root.BlkioStats.PSI,
	} {
		if *at == nil {
			*at = stall.Read(filepath.Join(s.Host, "proc/pressure", name))
		}
	}
	return root, nil
}

// forgetOld drops rates that no request has used for an hour.
func (s *Stats) forgetOld() { s.rates.Keep(s.Now().Add(-time.Hour)) }

// all samples the whole machine and the pods. root has no Stats if it could not be read. failed is 1 if anything was
// left out, in the form of a scrape.
func (s *Stats) all(what cgroups.Controller) (root sample, pods []podSample, failed float64) {
	root, err := s.root(what)
	if err != nil {
		s.Log.Warn("cannot read the node's usage, leaving it out", "err", err)
		failed = 1
	}
	if pods, err = s.scan(what); err != nil {
		s.Log.Warn("cannot read the usage of some pods, leaving it out", "err", err)
		failed = 1
	}
	return root, pods, failed
}

// layers returns the containers' writable layers. If the runtime cannot list them, the statistics go without.
func (s *Stats) layers(ctx context.Context) map[string]Layer {
	all, err := s.Source.Layers(ctx)
	if err != nil {
		s.Log.Warn("cannot list writable layers from the runtime, leaving some out", "err", err)
	}
	return all
}
