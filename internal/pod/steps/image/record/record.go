package record

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

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

// Records has the records of the node's images. Its methods may be called from any goroutine.
type Records struct {
	policy  Policy
	log     *slog.Logger
	intents *checkpoint.Dir[Intent]
	files   *checkpoint.Dir[Pulled]
	checks  *prometheus.CounterVec

	mu         sync.Mutex
	pulling    map[string]int    // number of running pulls by image
	unfinished map[string]bool   // images whose pull an earlier agent did not finish
	pulled     map[string]Pulled // by image id
}

// Intent records a running pull.
type Intent struct {
	// Image is the full name: registry, repository and tag or digest.
	Image string `json:"image"`
}

// New returns Records that are empty before Load.
func New(o Options) *Records {
	format := checkpoint.Format{Version: 1}
	return &Records{
		policy: o.Policy, log: o.Log, checks: newChecks(),
		intents: checkpoint.NewDir[Intent](filepath.Join(o.Dir, "pulling"), format),
		files:   checkpoint.NewDir[Pulled](filepath.Join(o.Dir, "pulled"), format),
		pulling: map[string]int{}, unfinished: map[string]bool{}, pulled: map[string]Pulled{},
	}
}

// Load reads the records of earlier agents. A damaged file is moved aside and logged. Its image must then be verified
// again.
func (r *Records) Load() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	unfinished, err := r.intents.LoadAll()
	if _, err = r.damaged(err); err != nil {
		return fmt.Errorf("load image pulls: %w", err)
	}
	for image := range unfinished {
		r.unfinished[image] = true
	}
	r.pulled, err = r.files.LoadAll()
	ids, err := r.damaged(err)
	for _, id := range ids { // it was pulled, with unknown credentials
		r.pulled[id] = Pulled{}
	}
	if err != nil {
		return fmt.Errorf("load records of pulled images: %w", err)
	}
	return nil
}

// damaged logs the files that were moved aside and returns their keys. rest is every other part of the error.
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
		r.log.Warn("image record damaged, the image must be verified again", "err", damaged)
		stem := strings.TrimSuffix(filepath.Base(damaged.Path), ".json")
		if key, err := url.PathUnescape(stem); err == nil {
			keys = append(keys, key)
		}
	}
	return keys, rest
}

// Begin records, before anything is fetched, that a pull of an image begins. Each call is followed by one End or Fail.
func (r *Records) Begin(image string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pulling[image] == 0 && !r.unfinished[image] {
		if err := r.intents.Save(image, Intent{image}); err != nil {
			return fmt.Errorf("record the pull of an image: %w", err)
		}
	}
	r.pulling[image]++
	return nil
}

// End records that the image id was pulled from a repository with a credential. nil stands for a credential of the
// node, or none.
func (r *Records) End(image, repository, id string, s *credential.Secret) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	err := r.learn(repository, id, s)
	if err != nil { // the intent stays, so that the image counts as pulled
		r.unfinished[image] = true
	} else {
		delete(r.unfinished, image)
	}
	return errors.Join(err, r.leave(image))
}

// Fail records that a pull failed.
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
	if r.unfinished[image] {
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

// Allowed reports whether a pod may use a present image without pulling it. image is the pod's name for it, id its id.
// have returns the pod's secrets for the repository and is called only if they matter.
func (r *Records) Allowed(image, repository, id string, have func() []credential.Secret) (allowed bool) {
	result := recordFound
	defer func() {
		if !allowed {
			result = mustProve
		}
		r.checks.WithLabelValues(result).Inc()
	}()
	r.mu.Lock()
	known, ok := r.pulled[id]
	ours := ok || r.unfinished[image] || r.pulling[image] > 0
	r.mu.Unlock()
	record := &known
	if !ok {
		record = nil
	}
	if !r.policy.verify(repository, ours) {
		result = policyAllowed
		return true
	}
	if allowed, _ := decide(r.policy, repository, record, ours, nil); allowed || record == nil {
		return allowed
	}
	allowed, learn := decide(r.policy, repository, record, ours, have())
	if learn != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		if err := r.learn(repository, id, learn); err != nil {
			r.log.Warn("cannot record access to an image, the next pod with this secret will pull it again", "image",
				image, "err", err)
		}
	}
	return allowed
}

// Forget deletes the record of a removed image.
func (r *Records) Forget(id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, ok := r.pulled[id]; !ok {
		return nil
	}
	delete(r.pulled, id)
	return r.files.Delete(id)
}
