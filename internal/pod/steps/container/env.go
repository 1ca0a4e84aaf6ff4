package container

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	corev1 "k8s.io/api/core/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/berth-run/berth/internal/base/reason"
	"github.com/berth-run/berth/internal/base/safepath"
	"github.com/berth-run/berth/internal/model/object"
	"github.com/berth-run/berth/internal/model/pod"
	"github.com/berth-run/berth/internal/pod/steps/container/render"
	"github.com/berth-run/berth/internal/record/event"
)

// maxEnvFile is the largest environment file that is read, in bytes.
const maxEnvFile = 1 << 20

// objects returns the ConfigMaps and Secrets that pods refer to. The errors are *object.Missing and *object.Unknown.
type objects interface {
	ConfigMap(namespace, name string) (*corev1.ConfigMap, error)
	Secret(namespace, name string) (*corev1.Secret, error)
}

// sources reads the sources of the container's variables. It leaves out sources that do not exist: package render
// decides whether that is an error.
func (l *launch) sources(mounted map[string]pod.Volume) (s render.Sources, err error) {
	keys, files := render.Needs(l.pod.Namespace, l.want.Container)
	s.Objects, s.Files = map[object.Key]apiruntime.Object{}, map[render.EnvFile]string{}
	for _, key := range keys {
		var o apiruntime.Object
		if key.Kind == object.Secret {
			o, err = l.s.opts.Objects.Secret(key.Namespace, key.Name)
		} else {
			o, err = l.s.opts.Objects.ConfigMap(key.Namespace, key.Name)
		}
		if _, missing := errors.AsType[*object.Missing](err); missing {
			continue
		}
		if err != nil {
			return s, err
		}
		s.Objects[key] = o
	}
	if l.s.opts.Services != nil {
		services, err := l.s.opts.Services.Services(l.pod)
		if err != nil {
			return s, err
		}
		s.Services = render.Services(l.pod, services)
	}
	for _, f := range files {
		v, ok := mounted[f.Volume]
		if !ok || v.Block {
			return s, fmt.Errorf("cannot find the volume %q referenced by FileKeyRef", f.Volume)
		}
		text, err := readEnvFile(v.Path, f.Path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return s, fmt.Errorf("read env file %q of volume %q: %w", f.Path, f.Volume, err)
		}
		s.Files[f] = text
	}
	return s, nil
}

// readEnvFile reads a regular file of a volume. Containers can write there, so it refuses a link out of the volume and
// opens nothing that could block.
func readEnvFile(volume, path string) (string, error) {
	root, err := safepath.Host(volume)
	if err != nil {
		return "", err
	}
	defer root.Close()
	at, err := safepath.Open(root, path)
	if err != nil {
		return "", err
	}
	defer at.Close()
	f, err := safepath.Read(at)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxEnvFile+1))
	if err == nil && len(text) > maxEnvFile {
		err = fmt.Errorf("it has more than %d bytes", maxEnvFile)
	}
	return string(text), err
}

// reportSkipped records an event for the keys of envFrom that cannot be the name of a variable.
func (l *launch) reportSkipped(in render.Input) {
	for _, message := range render.Skipped(in) {
		l.s.opts.Events.Event(event.ContainerRef(l.pod, l.want.Container), corev1.EventTypeWarning,
			reason.InvalidEnvironmentVariableNames, "%s", message)
	}
}

// missing returns the names of the objects that containers of a pod wait for.
func (l *life) missing() (names []string) {
	for _, err := range l.failed {
		if m, ok := errors.AsType[*object.Missing](err); ok {
			names = append(names, m.Key.String())
		}
		if u, ok := errors.AsType[*object.Unknown](err); ok {
			names = append(names, u.Key.String())
		}
	}
	return names
}
