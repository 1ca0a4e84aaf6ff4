package record

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"
	"sync"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/pod/steps/image/credential"
)

// Options of Records. All are required.
type Options struct {
	// Dir holds the directories pulling and pulled.
	Dir    string
	Policy Policy
	Log    *slog.Logger
}

// Records is what is known of the node's images. Its methods may be called from
// any goroutine.
type Records struct {
	policy  Policy
	log     *slog.Logger
	intents *checkpoint.Dir[Intent]
	files   *checkpoint.Dir[Pulled]

	mu      sync.Mutex
	pulling map[string]int    // pulls under way by image
	left    map[string]bool   // images whose pull an earlier agent has not ended
	pulled  map[string]Pulled // by id
}

// Intent is a pull under way.
type Intent struct {
	// Image is the full name: registry, repository and tag or digest.
	Image string `json:"image"`
}

// New makes Records that know nothing before Load.
func New(o Options) *Records {
	format := checkpoint.Format{Version: 1}
	return &Records{
		policy: o.Policy, log: o.Log,
		intents: checkpoint.NewDir[Intent](filepath.Join(o.Dir, "pulling"), format),
		files:   checkpoint.NewDir[Pulled](filepath.Join(o.Dir, "pulled"), format),
		pulling: map[string]int{}, left: map[string]bool{}, pulled: map[string]Pulled{},
	}
}

// Load reads what earlier agents have written. A file that is damaged is moved
// aside and told: its image has to be verified again.
func (r *Records) Load() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	left, err := r.intents.LoadAll()
	if _, err = r.damaged(err); err != nil {
		return fmt.Errorf("load image pulls: %w", err)
	}
	for image := range left {
		r.left[image] = true
	}
	r.pulled, err = r.files.LoadAll()
	ids, err := r.damaged(err)
	for _, id := range ids { // it was pulled, by nobody knows whom
		r.pulled[id] = Pulled{}
	}
	if err != nil {
		return fmt.Errorf("load records of pulled images: %w", err)
	}
	return nil
}

// damaged logs which files were moved aside and returns their keys, and the rest
// of the error.
func (r *Records) damaged(err error) (keys []string, rest error) {
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for _, err := range all {
		damaged, ok := errors.AsType[*checkpoint.DamagedError](err)
		if !ok {
			rest = errors.Join(rest, err)
			continue
		}
		r.log.Warn("an image has to be verified again", "err", damaged)
		stem := strings.TrimSuffix(filepath.Base(damaged.Path), ".json")
		if key, err := url.PathUnescape(stem); err == nil {
			keys = append(keys, key)
		}
	}
	return keys, rest
}

// Begin notes, before anything is fetched, that an image is pulled. Each is
// followed by one End or Fail.
func (r *Records) Begin(image string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pulling[image] == 0 && !r.left[image] {
		if err := r.intents.Save(image, Intent{image}); err != nil {
			return fmt.Errorf("record the pull of an image: %w", err)
		}
	}
	r.pulling[image]++
	return nil
}

// End notes that the image id was pulled from a repository with a credential;
// nil is one of the node, or none.
func (r *Records) End(image, repository, id string, s *credential.Secret) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.learn(repository, id, s)
	if err != nil { // the intent stays: the image counts as one that was pulled
		r.left[image] = true
	} else {
		delete(r.left, image)
	}
	return errors.Join(err, r.leave(image))
}

// Fail notes that a pull has brought nothing.
func (r *Records) Fail(image string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leave(image)
}

// leave ends one of the pulls of an image. The caller holds mu.
func (r *Records) leave(image string) error {
	if r.pulling[image]--; r.pulling[image] > 0 {
		return nil
	}
	delete(r.pulling, image)
	if r.left[image] {
		return nil
	}
	return r.intents.Delete(image)
}

// learn adds a credential to an image's record. The caller holds mu.
func (r *Records) learn(repository, id string, s *credential.Secret) error {
	record := r.pulled[id].with(repository, s)
	if err := r.files.Save(id, record); err != nil {
		return fmt.Errorf("record what an image was pulled with: %w", err)
	}
	r.pulled[id] = record
	return nil
}

// Allowed says whether a pod may use the image id, which is present and which it
// calls image, of a repository. have lists its secrets for that; it is called
// only if it matters.
func (r *Records) Allowed(image, repository, id string, have func() []credential.Secret) bool {
	r.mu.Lock()
	known, ok := r.pulled[id]
	ours := ok || r.left[image] || r.pulling[image] > 0
	r.mu.Unlock()
	record := &known
	if !ok {
		record = nil
	}
	if allowed, _ := decide(r.policy, repository, record, ours, nil); allowed || record == nil {
		return allowed
	}
	allowed, learn := decide(r.policy, repository, record, ours, have())
	if learn != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if err := r.learn(repository, id, learn); err != nil {
			r.log.Warn("the next pod with this secret will pull the image again", "image", image, "err", err)
		}
	}
	return allowed
}

// Forget drops the record of an image that is gone.
func (r *Records) Forget(id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.pulled[id]; !ok {
		return nil
	}
	delete(r.pulled, id)
	return r.files.Delete(id)
}
