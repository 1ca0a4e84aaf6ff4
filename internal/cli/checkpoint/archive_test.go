package checkpoint

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func tarOf(t *testing.T, files ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range files {
		if err := add(w, name, int64(len(name)), strings.NewReader(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func readTar(t *testing.T, archive io.Reader) map[string]string {
	t.Helper()
	all := map[string]string{}
	for r := tar.NewReader(archive); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		content, readErr := io.ReadAll(r)
		if err := errors.Join(err, readErr); err != nil {
			t.Fatal(err)
		}
		all[header.Name] = string(content)
	}
}

func TestPackAddsThePod(t *testing.T) {
	from := origin{Container: "app", Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}}}
	var out bytes.Buffer
	if err := pack(&out, from, bytes.NewReader(tarOf(t, "config.dump", "checkpoint/pages-1.img"))); err != nil {
		t.Fatal(err)
	}
	got, err := unpackOrigin(bytes.NewReader(out.Bytes()))
	if d := cmp.Diff(from, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	files := readTar(t, &out)
	if len(files) != 3 || files["config.dump"] != "config.dump" ||
		files["checkpoint/pages-1.img"] != "checkpoint/pages-1.img" {
		t.Errorf("files: %v", files)
	}
}

// An error of the agent comes before the first file, or in the middle of one. It is never a complete archive.
func TestPackFailsWithTheAgent(t *testing.T) {
	whole := tarOf(t, "config.dump", "checkpoint")
	for name, given := range map[string][]byte{"nothing": nil, "a part": whole[:1000]} {
		cause := errors.New("no criu")
		stream := io.MultiReader(bytes.NewReader(given), failing{cause})
		if err := pack(io.Discard, origin{}, stream); !errors.Is(err, cause) {
			t.Errorf("%s: %v, want %v", name, err, cause)
		}
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestUnpackOriginRefusesOtherArchives(t *testing.T) {
	for want, given := range map[string][]byte{
		"the archive is empty": nil,
		`the archive does not begin with berth.json: it was not made by "berth checkpoint"`: tarOf(t, "config.dump"),
		"read berth.json of the archive: invalid character 'b' looking for beginning of value": tarOf(t,
			"berth.json"),
	} {
		if _, err := unpackOrigin(bytes.NewReader(given)); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestRestoredIsThePodWithTheCheckpoint(t *testing.T) {
	ran := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "app", UID: "1", ResourceVersion: "7",
			Labels:      map[string]string{"a": "b"},
			Annotations: map[string]string{"kubernetes.io/config.source": "local", "mine": "x"}},
		Spec: corev1.PodSpec{NodeName: "node1",
			Containers: []corev1.Container{{Name: "side", Image: "side:1"},
				{Name: "app", Image: "app:1", ImagePullPolicy: corev1.PullAlways}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	want := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: "web2", Namespace: "app", Labels: map[string]string{"a": "b"},
			Annotations: map[string]string{"mine": "x"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "side", Image: "side:1"},
			{Name: "app", Image: "checkpoint:1", ImagePullPolicy: corev1.PullNever}}},
	}
	got, err := origin{"app", ran}.restored("web2", "checkpoint:1")
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, d)
	}
	const missing = `the pod of the archive has no app container "init"`
	if _, err := (origin{"init", ran}).restored("", ""); err == nil || err.Error() != missing {
		t.Errorf("%v, want %s", err, missing)
	}
}

// The image is an OCI layout whose layer is the archive.
func TestWriteMakesAnImageOfTheArchive(t *testing.T) {
	archive := tarOf(t, "berth.json")
	l := layer{content: bytes.NewReader(archive), digest: digest.FromBytes(archive), size: int64(len(archive))}
	name := l.imageName("web")
	var out bytes.Buffer
	if err := l.write(&out, name, "app"); err != nil {
		t.Fatal(err)
	}
	files := readTar(t, &out)
	if files[path(l.digest)] != string(archive) {
		t.Error("the layer is not the archive")
	}
	var index ocispec.Index
	var manifest ocispec.Manifest
	if err := json.Unmarshal([]byte(files["index.json"]), &index); err != nil {
		t.Fatal(err)
	}
	if got := index.Manifests[0].Annotations["io.containerd.image.name"]; got != name ||
		!strings.HasPrefix(name, "localhost/berth-checkpoint/web:") {
		t.Errorf("the name is %s, want %s", got, name)
	}
	if err := json.Unmarshal([]byte(files[path(index.Manifests[0].Digest)]), &manifest); err != nil {
		t.Fatal(err)
	}
	if manifest.Annotations["org.criu.checkpoint.container.name"] != "app" ||
		manifest.Layers[0].Digest != l.digest || manifest.Layers[0].Size != l.size {
		t.Errorf("manifest: %+v", manifest)
	}
}
