package servertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/api"
	"github.com/berth-run/berth/internal/api/answer"
	"github.com/berth-run/berth/internal/api/server"
	"github.com/berth-run/berth/internal/base/document"
)

// pods applies, explains, amends and deletes pods in a table, and records the requests.
type pods struct {
	table *server.Pods

	mu        sync.Mutex
	uids      int
	onApply   func(*corev1.Pod)
	onDelete  func(*corev1.Pod)
	applied   []server.ApplyOptions
	explained []api.Explanation // the answer to an explain
	deleted   []Deletion
}

// Deletion is one call of Applier.Delete.
type Deletion struct {
	Key   types.NamespacedName
	Grace *time.Duration
}

// put adds or replaces a pod by name and returns it. A pod without a UID gets one.
func (f *pods) put(p *corev1.Pod) *corev1.Pod {
	p = p.DeepCopy()
	p.Namespace = cmp.Or(p.Namespace, "default")
	if p.UID == "" {
		f.mu.Lock()
		f.uids++
		p.UID = types.UID(fmt.Sprintf("uid-%d", f.uids))
		f.mu.Unlock()
	}
	f.table.Put(keyOf(p), p)
	return p
}

func keyOf(p *corev1.Pod) types.NamespacedName {
	return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
}

// change changes an existing pod and returns it.
func (f *pods) change(key types.NamespacedName, change func(*corev1.Pod)) *corev1.Pod {
	p, ok := f.table.Get(key)
	if !ok {
		panic("no pod " + key.String())
	}
	p = p.DeepCopy()
	change(p)
	return f.put(p)
}

func (f *pods) Apply(_ context.Context, data []byte, opts server.ApplyOptions) ([]api.ApplyResult, error) {
	f.mu.Lock()
	f.applied = append(f.applied, opts)
	f.mu.Unlock()
	var pods []*corev1.Pod
	for _, doc := range document.Split(data) {
		p, err := decode(doc, opts)
		if err != nil {
			return nil, err
		}
		if _, exists := f.table.Get(keyOf(p)); exists && opts.CreateOnly {
			return nil,
				answer.Next(apierrors.NewAlreadyExists(schema.GroupResource{Resource: "pods"}, p.Name),
					"delete it first")
		}
		pods = append(pods, p)
	}
	notify := get(&f.mu, &f.onApply)
	var results []api.ApplyResult
	for _, p := range pods {
		r := api.ApplyResult{Kind: api.KindPod, Namespace: p.Namespace, Name: p.Name, Action: api.Created}
		if was, exists := f.table.Get(keyOf(p)); exists {
			r.Action, p.UID = api.Configured, was.UID
		}
		if !opts.DryRun && !opts.NamesOnly {
			p = f.put(p)
		}
		r.UID = p.UID
		results = append(results, r)
		if notify != nil && !opts.DryRun && !opts.NamesOnly {
			notify(p)
		}
	}
	return results, nil
}

func decode(doc document.Document, opts server.ApplyOptions) (*corev1.Pod, error) {
	data, err := doc.JSON()
	p := &corev1.Pod{}
	if err == nil {
		err = doc.Decode(data, p)
	}
	if err != nil {
		return nil, answer.BadRequest(fmt.Sprintf("%s: %v", opts.Origin, err), "correct the manifest")
	}
	if opts.Namespace != "" && p.Namespace != "" && p.Namespace != opts.Namespace {
		return nil, answer.BadRequest(fmt.Sprintf("%s: pod is in namespace %s", opts.Origin, p.Namespace),
			"drop the flag or the field")
	}
	p.Namespace = cmp.Or(p.Namespace, opts.Namespace, "default")
	p.Status.Phase = corev1.PodPending
	return p, nil
}

func (f *pods) Delete(_ context.Context, key types.NamespacedName, opts server.DeleteOptions) (*corev1.Pod, error) {
	p, ok := f.table.Get(key)
	if !ok {
		return nil, answer.NotFound(key)
	}
	if opts.UID != "" && opts.UID != p.UID {
		return nil,
			apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, p.Name, errors.New("it has another UID"))
	}
	p = f.change(key, func(p *corev1.Pod) {
		now := metav1.Now()
		p.DeletionTimestamp = &now
		seconds := int64(30)
		if opts.Grace != nil {
			seconds = int64(*opts.Grace / time.Second)
		}
		p.DeletionGracePeriodSeconds = &seconds
	})
	f.mu.Lock()
	f.deleted = append(f.deleted, Deletion{key, opts.Grace})
	notify := f.onDelete
	f.mu.Unlock()
	if notify != nil {
		notify(p)
		return p, nil
	}
	f.change(key, func(p *corev1.Pod) { Terminate(p, 0) })
	f.table.Delete(key)
	return p, nil
}

func (f *pods) Explain(_ context.Context, data []byte, o server.ApplyOptions) ([]api.Explanation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.applied = append(f.applied, o)
	if len(data) == 0 {
		return nil, answer.BadRequest(o.Origin+": nothing is in it", "correct the manifest")
	}
	return f.explained, nil
}

func (f *pods) Resize(_ context.Context, key types.NamespacedName, r api.Resize) (*corev1.Pod, error) {
	return f.amend(key, func(p *corev1.Pod) {
		for i := range p.Spec.Containers {
			if c := &p.Spec.Containers[i]; c.Name == r.Container {
				c.Resources.Limits = maps.Clone(r.Resources.Limits)
				c.Resources.Requests = maps.Clone(r.Resources.Requests)
			}
		}
	})
}

func (f *pods) SetCondition(_ context.Context, key types.NamespacedName, c corev1.PodCondition) (*corev1.Pod, error) {
	return f.amend(key, func(p *corev1.Pod) { p.Status.Conditions = append(p.Status.Conditions, c) })
}

// AddEphemeral implements server.Amender. The container ends at once, with exit code 3 if its command is "fail" and 0
// otherwise.
func (f *pods) AddEphemeral(_ context.Context, key types.NamespacedName, c corev1.EphemeralContainer) (*corev1.Pod,
	error) {
	return f.amend(key, func(p *corev1.Pod) {
		code := int32(0)
		if len(c.Command) > 0 && c.Command[0] == "fail" {
			code = 3
		}
		p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, c)
		p.Status.EphemeralContainerStatuses = append(p.Status.EphemeralContainerStatuses, corev1.ContainerStatus{
			Name: c.Name, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}},
		})
	})
}

func (f *pods) amend(key types.NamespacedName, change func(*corev1.Pod)) (*corev1.Pod, error) {
	row, ok := f.table.Get(key)
	if !ok {
		return nil, answer.NotFound(key)
	}
	p := row.DeepCopy()
	change(p)
	f.put(p)
	return p, nil
}
