package stats

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/opencontainers/cgroups"
)

// podSample is a pod and what it uses.
type podSample struct {
	Pod
	sample
	containers []containerSample
	network    []traffic
	processes  int
}

type containerSample struct {
	Container
	sample
	processes int
}

// scan reads the cgroups of all pods, and their processes and networks if all is
// to be told of them. What ended meanwhile is left out; the error
// joins what could not be read for another reason.
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
	if one.sample, err = read(p.Group, what, s.Now()); err != nil {
		return one, err
	}
	var errs []error
	inside := 0 // a process in the pod's network namespace
	for _, c := range p.Containers {
		sampled, err := read(c.Group, what, s.Now())
		if err != nil {
			if !gone(err) {
				errs = append(errs, err)
			}
			continue
		}
		n, first := 0, 0
		if what == full {
			n, first = processes(c.Group)
		}
		if inside == 0 {
			inside = first
		}
		one.processes += n
		one.containers = append(one.containers, containerSample{c, sampled, n})
	}
	if inside != 0 && !p.HostNetwork {
		if one.network, err = network(s.Host, inside); err != nil && !gone(err) {
			errs = append(errs, err)
		}
	}
	return one, errors.Join(errs...)
}

// root is the whole machine, of which version 1 counts no processes.
func (s *Stats) root(what cgroups.Controller) (sample, error) {
	g := s.Root
	g.Dirs = maps.Clone(g.Dirs)
	delete(g.Dirs, "pids")
	return read(g, what, s.Now())
}

// remember bounds what is kept for rates: what nobody asked about for an hour is
// gone, or of no interest.
func (s *Stats) remember() { s.rates.keep(s.Now().Add(-time.Hour)) }

// all is the whole machine, without Stats where it could not be read, and the pods.
// failed is 1 if something was left out, as a scrape says it.
func (s *Stats) all(what cgroups.Controller) (root sample, pods []podSample, failed float64) {
	root, err := s.root(what)
	if err != nil {
		s.Log.Warn("read what the node uses", "err", err)
		failed = 1
	}
	if pods, err = s.scan(what); err != nil {
		s.Log.Warn("read what pods use", "err", err)
		failed = 1
	}
	return root, pods, failed
}

// layers are best effort: statistics without them are better than none.
func (s *Stats) layers(ctx context.Context) map[string]Layer {
	all, err := s.Source.Layers(ctx)
	if err != nil {
		s.Log.Warn("ask the runtime what containers have written", "err", err)
	}
	return all
}
