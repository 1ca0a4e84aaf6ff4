package record

import (
	"cmp"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/node/resource"
	"github.com/berth-run/berth/internal/node/resource/device"
	kubelet "github.com/berth-run/berth/internal/pod/steps/device/checkpoint"
)

// Resources has the devices of each resource, as a plugin last listed them.
type Resources map[corev1.ResourceName][]device.Device

// savedResources is the stored form of the resources.
type savedResources struct {
	Resources Resources `json:"resources"`
}

// format is the version of all files.
var format = checkpoint.Format{Version: 1}

// Options are the settings of Records.
type Options struct {
	// Plugins is the directory of the plugins' sockets. It has the kubelet's checkpoint.
	Plugins string
	// State is the directory of the agent's own files.
	State string
	// Boot is the kernel's boot id.
	Boot string
	Log  *slog.Logger
}

// Records holds the answers of plugins and writes the files. Its methods may be called from any goroutine.
type Records struct {
	o     Options
	files *checkpoint.Dir[Answers] // one file for each pod
	// writing is held while answers and their files change, mirroring while the kubelet's checkpoint is written.
	writing, mirroring sync.Mutex

	mu      sync.Mutex
	answers map[types.UID]Answers
	healthy map[string][]device.ID // the healthy devices of each resource

	// Load sets the fields below.

	fromKubelet resource.Held
	fresh       bool
}

// New returns Records without answers. It does no I/O.
func New(o Options) *Records {
	return &Records{o: o, files: checkpoint.NewDir[Answers](filepath.Join(o.State, "pods"), format),
		answers: map[types.UID]Answers{}, healthy: map[string][]device.ID{}}
}

func (r *Records) resourcesFile() string { return filepath.Join(r.o.State, "resources.json") }

// Load reads the files of the previous agent and returns the devices of its resources, sorted by id. It reads the
// kubelet's checkpoint too if there are no such files or a kubelet has written the checkpoint since. Everything that
// could be read is in use even if Load returns an error.
func (r *Records) Load() (Resources, error) {
	files, keptErr := r.files.LoadAll()
	saved, readErr := checkpoint.Load[savedResources](r.resourcesFile(), format)
	none := errors.Is(readErr, fs.ErrNotExist)
	if none {
		readErr, saved.Resources = nil, Resources{}
	}
	resources := saved.Resources
	if resources == nil { // the file is damaged
		resources = Resources{}
	}
	theirs, theirErr := readKubelet(filepath.Join(r.o.Plugins, kubelet.Name), r.o.Boot)
	r.fresh = none && theirs.none
	all := map[types.UID]Answers{}
	for uid, a := range files {
		all[types.UID(uid)] = a
	}
	take := none || !theirs.ours
	if take {
		r.fromKubelet = held(theirs.pods, r.o.Boot)
		for uid := range r.fromKubelet {
			all[uid] = all[uid].merge(theirs.pods[uid])
			theirErr = errors.Join(theirErr, r.files.Save(string(uid), all[uid]))
		}
		for name, devices := range theirs.known {
			if _, own := resources[name]; !own {
				resources[name] = devices
			}
		}
	}
	healthy := map[string][]device.ID{} // no plugin is connected yet
	for name, devices := range resources {
		slices.SortFunc(devices, func(a, b device.Device) int { return cmp.Compare(a.ID, b.ID) })
		healthy[string(name)] = []device.ID{}
	}
	r.mu.Lock()
	r.answers, r.healthy = all, healthy
	r.mu.Unlock()
	if take && len(theirs.pods)+len(theirs.known) > 0 {
		// The next start does not read the checkpoint again.
		theirErr = errors.Join(theirErr, r.SaveResources(resources, healthy))
	}
	return resources, errors.Join(keptErr, readErr, theirErr)
}

// Fresh reports whether neither an agent nor a kubelet has stored device state here: the machine is new, perhaps a
// replacement with an old name.
func (r *Records) Fresh() bool { return r.fresh }

// FromKubelet returns the devices that a kubelet allocated to pods since an agent last ran here. They count more than
// the agent's own records.
func (r *Records) FromKubelet() resource.Held { return r.fromKubelet }

// Held returns the devices of all answers that are stored, including a kubelet's. The ledger is rebuilt from them if it
// is lost.
func (r *Records) Held() resource.Held {
	r.mu.Lock()
	defer r.mu.Unlock()
	return held(r.answers, r.o.Boot)
}

// Users returns the pods whose answers are stored.
func (r *Records) Users() []types.UID {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Keys(r.answers))
}

// Answers returns the answers for a pod. The caller must not change them.
func (r *Records) Answers(uid types.UID) Answers {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.answers[uid]
}

// SaveAnswer stores an answer. If the write fails, the answer counts until the agent ends, and the next agent calls the
// plugin's Allocate again.
func (r *Records) SaveAnswer(uid types.UID, container string, name corev1.ResourceName, a Answer) {
	r.writing.Lock()
	defer r.writing.Unlock()
	r.mu.Lock()
	all := r.answers[uid].with(container, name, a)
	r.answers[uid] = all
	r.mu.Unlock()
	if err := r.files.SaveUnsynced(string(uid), all); err != nil {
		r.o.Log.Error("cannot save the answer of a device plugin, requesting it again after a restart", "pod", uid,
			"resource", name, "err", err)
	}
	r.mirror()
}

// Forget deletes the answers for a pod.
func (r *Records) Forget(uid types.UID) error {
	r.writing.Lock()
	defer r.writing.Unlock()
	r.mu.Lock()
	_, kept := r.answers[uid]
	delete(r.answers, uid)
	r.mu.Unlock()
	if !kept {
		return nil
	}
	err := r.files.DeleteUnsynced(string(uid))
	r.mirror()
	return err
}

// SaveResources stores the devices of all resources. healthy has the ids of the healthy devices of each resource. A
// resource without a plugin has an empty list there.
func (r *Records) SaveResources(all Resources, healthy map[string][]device.ID) error {
	r.mu.Lock()
	r.healthy = healthy
	r.mu.Unlock()
	if err := os.MkdirAll(r.o.State, 0o700); err != nil {
		return err
	}
	if err := checkpoint.Save(r.resourcesFile(), format, savedResources{Resources: all}); err != nil {
		return err
	}
	r.mirror()
	return nil
}
