package poddir

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berth-run/berth/internal/base/safepath"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/worker"
	"github.com/berth-run/berth/internal/record/event"
)

// Config of Dirs.
type Config struct {
	// Root is the agent's directory. Pods are in <Root>/pods.
	Root string
	// Logs is the kubelet's podLogsDir.
	Logs string
	// ResolvConf is the host's resolv.conf. "" gives pods no DNS settings of the host.
	ResolvConf string
	// ResolvConfBehindStub replaces ResolvConf for pods on their own network if ResolvConf names only the host itself.
	// Default: the file of systemd-resolved.
	ResolvConfBehindStub string
	// HostsFile is the host's hosts file. Default /etc/hosts.
	HostsFile string
	Resolver  Resolver
	Events    event.Sink
	// Node is the object of the events about the node.
	Node corev1.ObjectReference
	// NoHostnameOverride ignores the pods' hostnameOverride (feature gate HostnameOverride: false).
	NoHostnameOverride bool
}

// Dirs makes and removes the directories of pods.
type Dirs struct{ cfg Config }

// New returns a Dirs. It does no I/O.
func New(c Config) *Dirs {
	if c.HostsFile == "" {
		c.HostsFile = "/etc/hosts"
	}
	if c.ResolvConfBehindStub == "" {
		c.ResolvConfBehindStub = "/run/systemd/resolve/resolv.conf"
	}
	return &Dirs{cfg: c}
}

// Step is the directories' step in a pod's life.
func (d *Dirs) Step() worker.Step {
	return worker.Step{
		Name: "poddir", Phase: worker.Prepare,
		Setup: func(_ context.Context, r *worker.Run) error { return d.setup(r.Pod.Pod) },
		Teardown: func(ctx context.Context, r *worker.Run) error {
			if err := d.Remove(ctx, r.Pod.UID); err != nil || !r.Stop.Remove {
				return err // the logs of a pod that has ended stay until the pod is removed
			}
			return d.RemoveLogs(ctx, r.Pod.UID)
		},
	}
}

const podsDir = "pods"

// Dir returns the pod's directory.
func (d *Dirs) Dir(uid types.UID) (string, error) {
	if err := safepath.Name(string(uid)); err != nil {
		return "", fmt.Errorf("use the pod's UID: %w", err)
	}
	return filepath.Join(d.cfg.Root, podsDir, string(uid)), nil
}

// LogDir returns the directory of the logs of the pod's containers. Its files are <name>/<restart>.log.
func (d *Dirs) LogDir(p *corev1.Pod) string {
	return filepath.Join(d.cfg.Logs, p.Namespace+"_"+p.Name+"_"+string(p.UID))
}

func (d *Dirs) setup(p *corev1.Pod) error {
	dir, err := d.Dir(p.UID)
	if err != nil {
		return err
	}
	if err := safepath.Name(filepath.Base(d.LogDir(p))); err != nil ||
		filepath.Dir(d.LogDir(p)) != filepath.Clean(d.cfg.Logs) {
		return fmt.Errorf("name the log directory: namespace %q and name %q cannot be part of a path", p.Namespace,
			p.Name)
	}
	for _, sub := range []string{"volumes", "plugins", "containers"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o750); err != nil {
			return fmt.Errorf("make the pod's directories: %w", err)
		}
	}
	if err := os.MkdirAll(d.LogDir(p), 0o755); err != nil {
		return fmt.Errorf("make the pod's log directory: %w", err)
	}
	return nil
}

// Remove removes the pod's directory. It refuses while something is mounted in it, because that content does not belong
// to the pod.
func (d *Dirs) Remove(ctx context.Context, uid types.UID) error {
	dir, err := d.Dir(uid)
	if err != nil {
		return err
	}
	resolved, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove the pod's directory: %w", err)
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(resolved))
	if err != nil {
		return fmt.Errorf("read the mount table: %w", err)
	}
	if len(mounts) > 0 {
		points := make([]string, len(mounts))
		for i, m := range mounts {
			points[i] = fmt.Sprintf("%s (%s)", m.Mountpoint, m.FSType)
		}
		return fmt.Errorf("remove the pod's directory: still mounted in it: %s", strings.Join(points, ", "))
	}
	return safepath.RemoveAll(ctx, resolved)
}

// RemoveLogs removes the logs of a pod, whatever its name was.
func (d *Dirs) RemoveLogs(ctx context.Context, uid types.UID) error {
	dirs, err := d.logDirs()
	if err != nil {
		return err
	}
	var errs []error
	for name, owner := range dirs {
		if owner == uid {
			errs = append(errs, safepath.RemoveAll(ctx, filepath.Join(d.cfg.Logs, name)))
		}
	}
	return errors.Join(errs...)
}

// Orphans returns the pods that have a directory and are not known.
func (d *Dirs) Orphans(known func(types.UID) bool) ([]types.UID, error) {
	entries, err := os.ReadDir(filepath.Join(d.cfg.Root, podsDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list pod directories: %w", err)
	}
	var orphans []types.UID
	for _, e := range entries {
		if uid := types.UID(e.Name()); e.IsDir() && !known(uid) {
			orphans = append(orphans, uid)
		}
	}
	return orphans, nil
}

// LogOrphans returns the pods that have logs and are not known.
func (d *Dirs) LogOrphans(known func(types.UID) bool) ([]types.UID, error) {
	dirs, err := d.logDirs()
	if err != nil {
		return nil, err
	}
	var orphans []types.UID
	for _, uid := range dirs {
		if !known(uid) {
			orphans = append(orphans, uid)
		}
	}
	slices.Sort(orphans)
	return slices.Compact(orphans), nil
}

// logDirs returns the log directories with the UIDs of their pods.
func (d *Dirs) logDirs() (map[string]types.UID, error) {
	entries, err := os.ReadDir(d.cfg.Logs)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list log directories: %w", err)
	}
	dirs := map[string]types.UID{}
	for _, e := range entries {
		if parts := strings.Split(e.Name(), "_"); e.IsDir() && len(parts) == 3 {
			dirs[e.Name()] = types.UID(parts[2])
		}
	}
	return dirs, nil
}

// Hostname returns the host name for the pod's own UTS namespace. It is "" on the host network, where the host's name
// stays.
func (d *Dirs) Hostname(p *corev1.Pod) (string, error) {
	if pod.HostNetwork(p) {
		return "", nil
	}
	n, err := d.namesOf(p)
	if err != nil {
		return "", err
	}
	return kernelHostname(p, n)
}

func (d *Dirs) namesOf(p *corev1.Pod) (PodNames, error) {
	if d.cfg.NoHostnameOverride && p.Spec.HostnameOverride != nil {
		p = p.DeepCopy()
		p.Spec.HostnameOverride = nil
	}
	return Names(p, d.cfg.Resolver.ClusterDomain)
}

// DNS returns the pod's DNS configuration and records its warnings as events.
func (d *Dirs) DNS(p *corev1.Pod) (*runtimeapi.DNSConfig, error) {
	host, err := d.hostDNS(p)
	if err != nil {
		return nil, err
	}
	c, warnings := PodDNS(p, d.cfg.Resolver, host)
	for _, w := range warnings {
		if w.Reason == MissingClusterDNS { // the node lacks it, for this pod and for others
			d.cfg.Events.Event(d.cfg.Node, corev1.EventTypeWarning, w.Reason, "%s", w.Message)
			w.Message = fmt.Sprintf(`pod: "%s_%s(%s)". %s`, p.Name, p.Namespace, p.UID, w.Message)
		}
		d.cfg.Events.Event(event.PodRef(p), corev1.EventTypeWarning, w.Reason, "%s", w.Message)
	}
	return c, nil
}

// hostDNS returns the host's configuration, or nil if pods shall not get one.
func (d *Dirs) hostDNS(p *corev1.Pod) (*runtimeapi.DNSConfig, error) {
	if d.cfg.ResolvConf == "" {
		return nil, nil
	}
	text, err := os.ReadFile(d.cfg.ResolvConf)
	if err != nil {
		return nil, fmt.Errorf("read the host's DNS configuration: %w", err)
	}
	c := parseResolvConf(string(text))
	if pod.HostNetwork(p) || !onlyLoopback(c.Servers) {
		return c, nil
	}
	text, err = os.ReadFile(d.cfg.ResolvConfBehindStub)
	if errors.Is(err, os.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the host's DNS configuration: %w", err)
	}
	return parseResolvConf(string(text)), nil
}
