package source

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/berth-run/berth/internal/base/checkpoint"
	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/pod/source/content"
	"github.com/berth-run/berth/internal/pod/source/manifest"
)

// localObjects holds the objects besides pods that the agent's API received. Local's lock guards them. Those of "berth
// apply" are stored in one file each, with mode 0600.
type localObjects struct {
	objectDisk *checkpoint.Dir[objectRecord]
	objects    map[object.Key]*content.Item
	// damagedObjects are records that cannot be read or are invalid, by key.
	damagedObjects map[string]Problem
}

// objectRecord is the stored form of an object, version 1.
type objectRecord struct {
	Kind   string          `json:"kind"`
	Object json.RawMessage `json:"object"`
}

func newLocalObjects(applied string) localObjects {
	return localObjects{
		objectDisk: checkpoint.NewDir[objectRecord](filepath.Join(applied, "objects"), checkpoint.Format{Version: 1}),
		objects:    map[object.Key]*content.Item{},
	}
}

// loadObjects reads the stored objects, as load does for pods.
func (l *localObjects) loadObjects() error {
	records, err := l.objectDisk.LoadAll()
	if l.damagedObjects, err = damagedRecords(l.objectDisk, err); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(records)) {
		i, err := restoreObject(records[name])
		if err != nil {
			l.damagedObjects[name] = Problem{Origin: originApply,
				Err: reason.New(reason.FailedValidation, "restore applied %s: %w; next: apply it again", name, err)}
			continue
		}
		l.objects[i.Key()] = i
	}
	return nil
}

func restoreObject(r objectRecord) (*content.Item, error) {
	kind, ok := object.KindNamed(r.Kind)
	if !ok {
		return nil, fmt.Errorf("unknown kind %q", r.Kind)
	}
	v := kind.New()
	if err := json.Unmarshal(r.Object, v); err != nil {
		return nil, err
	}
	object.Default(v)
	return &content.Item{Value: v, Origin: originApply}, manifest.Invalid(object.Validate(v))
}

func (l *localObjects) items() []*content.Item {
	return slices.SortedFunc(maps.Values(l.objects), func(a, b *content.Item) int { return a.Key().Compare(b.Key()) })
}

// checkObject returns the effect of applying an object, or why it cannot be applied.
func (l *Local) checkObject(o manifest.Object, origin string, now time.Time) (Applied, error) {
	i, err := content.CompleteObject(o)
	if err != nil {
		return Applied{}, err
	}
	key, was := i.Key(), l.objects[i.Key()]
	other, held := l.merge.holder(key)
	switch {
	case was == nil && held:
		return Applied{}, fmt.Errorf("%s already comes from %s: %w", key, other.Origin, ErrTaken)
	case was != nil && (was.Ephemeral || origin == originRun):
		return Applied{},
			fmt.Errorf("%s exists already (%s), delete it first or choose another name: %w", key, was.Origin,
				ErrTaken)
	case was == nil && i.GetUID() == "":
		i.SetUID(uuid.NewUUID())
	}
	made, err := content.Succeed(was, i, now)
	switch {
	case err != nil:
		return Applied{}, err
	case was == nil:
		return Applied{Object: made.Value, Result: Created}, nil
	case made == was:
		return Applied{Object: made.Value, Result: Unchanged}, nil
	}
	return Applied{Object: made.Value, Result: Configured}, nil
}

// putObject makes an object wanted, on disk first.
func (l *localObjects) putObject(i *content.Item, result Result) error {
	if result == Unchanged {
		return nil
	}
	key := i.Key()
	if !i.Ephemeral {
		text, err := json.Marshal(i.Value)
		if err == nil {
			err = l.objectDisk.Save(key.String(), objectRecord{Kind: key.Kind, Object: text})
		}
		if err != nil {
			return fmt.Errorf("save %s: %w", key, err)
		}
	}
	delete(l.damagedObjects, key.String())
	l.objects[key] = i
	return nil
}

// DeleteObject makes a local object unwanted, on disk first. The error is ErrNotFound, or ErrTaken for an object of a
// file or URL.
func (l *Local) DeleteObject(ctx context.Context, key object.Key) error {
	if err := l.ready(ctx); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	i := l.objects[key]
	if _, damaged := l.damagedObjects[key.String()]; i == nil && !damaged {
		if other, held := l.merge.holder(key); held {
			return fmt.Errorf("%s comes from %s, remove it there: %w", key, other.Origin, ErrTaken)
		}
		return fmt.Errorf("%s: %w", key, ErrNotFound)
	}
	if i == nil || !i.Ephemeral {
		err := l.objectDisk.Delete(key.String())
		if err == nil {
			err = l.objectDisk.Discard(key.String())
		}
		if err != nil {
			return fmt.Errorf("delete %s: %w", key, err)
		}
	}
	delete(l.objects, key)
	delete(l.damagedObjects, key.String())
	l.pass(time.Now())
	return nil
}
