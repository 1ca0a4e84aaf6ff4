package checkpoint

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-run/berth/internal/api/client"
	"github.com/berth-run/berth/internal/model/pod"
)

// originFile is the first file of an archive. Other programs ignore it.
const originFile = "berth.json"

// maxOrigin limits the size of originFile.
const maxOrigin = 4 << 20

// The next steps after an archive that cannot be restored.
const (
	giveArchive = `name an archive of "berth checkpoint"`
	newArchive  = `the archive is damaged: make a new one with "berth checkpoint"`
)

// origin says where a checkpoint comes from.
type origin struct {
	Container string      `json:"container"`
	Pod       *corev1.Pod `json:"pod"`
}

// pack writes a runtime's archive with the origin before its files.
func pack(to io.Writer, from origin, archive io.Reader) error {
	text, err := json.Marshal(from)
	if err != nil {
		return err
	}
	w, r := tar.NewWriter(to), tar.NewReader(archive)
	header := &tar.Header{Name: originFile, Mode: 0o600, Size: int64(len(text)), ModTime: time.Now()}
	for {
		// The first file of the runtime must be there: without it there was an error.
		next, err := r.Next()
		if header != nil {
			if err != nil {
				return err
			}
			if err := w.WriteHeader(header); err != nil {
				return err
			}
			if _, err := w.Write(text); err != nil {
				return err
			}
			header = nil
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if err := w.WriteHeader(next); err != nil {
			return err
		}
		if _, err := io.Copy(w, r); err != nil {
			return err
		}
	}
	if _, err := io.Copy(io.Discard, archive); err != nil { // the padding, and an error after it
		return err
	}
	return w.Close()
}

// unpackOrigin reads the origin of an archive.
func unpackOrigin(archive io.Reader) (from origin, err error) {
	r := tar.NewReader(archive)
	header, err := r.Next()
	if errors.Is(err, io.EOF) {
		return from, client.Next(errors.New("the archive is empty"), giveArchive)
	}
	if err != nil {
		return from, client.Next(fmt.Errorf("read the archive: %w", err), giveArchive)
	}
	if header.Name != originFile || header.Size > maxOrigin {
		return from, client.Next(
			fmt.Errorf("the archive does not begin with %s: it was not made by \"berth checkpoint\"", originFile),
			giveArchive)
	}
	if err := json.NewDecoder(r).Decode(&from); err != nil {
		return from, client.Next(fmt.Errorf("read %s of the archive: %w", originFile, err), newArchive)
	}
	if from.Pod == nil {
		return from, client.Next(fmt.Errorf("%s of the archive has no pod", originFile), newArchive)
	}
	return from, nil
}

// restored returns the pod to apply: the pod of the archive with the checkpoint as the image of its container. name
// replaces the name of the pod if it is not empty.
func (o origin) restored(name, image string) (*corev1.Pod, error) {
	p := pod.Manifest(o.Pod)
	if name != "" {
		p.Name = name
	}
	for i := range p.Spec.Containers {
		if c := &p.Spec.Containers[i]; c.Name == o.Container {
			c.Image, c.ImagePullPolicy = image, corev1.PullNever
			return p, nil
		}
	}
	return nil, client.Next(fmt.Errorf("the pod of the archive has no app container %q", o.Container),
		"only app containers can be restored: make a checkpoint of one of them")
}
