package image

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	dockerspec "github.com/moby/docker-image-spec/specs-go/v1"
	"github.com/moby/moby/api/pkg/authconfig"
	"github.com/moby/moby/api/types/image"
	"github.com/moby/moby/api/types/jsonstream"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestNamesOfImages(t *testing.T) {
	const digest = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	for name, want := range map[string]string{
		"busybox": "docker.io/library/busybox:latest", "example.com/a:1": "example.com/a:1", digest: digest,
		"example.com/a:1@" + digest: "example.com/a@" + digest,
	} {
		if got := familiar(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	got := normalized([]string{"busybox:1", "<none>:<none>", "example.com/a@" + digest})
	if diff := cmp.Diff([]string{"docker.io/library/busybox:1", "example.com/a@" + digest}, got); diff != "" {
		t.Error(diff)
	}
}

func TestImageWithItsUser(t *testing.T) {
	i := &image.InspectResponse{ID: "sha256:1", RepoTags: []string{"pause:1"}, Size: 5,
		Config: &dockerspec.DockerOCIImageConfig{}}
	i.Config.User = "1000:7"
	want := &runtimeapi.Image{Id: "sha256:1", RepoTags: []string{"docker.io/library/pause:1"}, Size: 5, Pinned: true,
		Spec: &runtimeapi.ImageSpec{}, Uid: &runtimeapi.Int64Value{Value: 1000}}
	if diff := cmp.Diff(want, inspected(i, "pause:1"), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	i.Config.User = "app"
	want.Uid, want.Username, want.Pinned = nil, "app", false
	if diff := cmp.Diff(want, inspected(i, "other:1"), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

func TestCredentialsOfAPull(t *testing.T) {
	header, err := authHeader(&runtimeapi.AuthConfig{Auth: "dXNlcjpwYTpzcw==", ServerAddress: "example.com"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := authconfig.Decode(header)
	if err != nil || got.Username != "user" || got.Password != "pa:ss" || got.ServerAddress != "example.com" {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := authHeader(&runtimeapi.AuthConfig{Auth: "dXNlcg=="}); err == nil {
		t.Error("a user without a password is accepted")
	}
}

// Messages of Docker 20.10: one layer is pulled, another one is there already.
func TestProgressOfAPull(t *testing.T) {
	s := &Service{}
	note, end := s.puller.progress.begin("busybox")
	for _, test := range []struct {
		message jsonstream.Message
		want    [3]int64
	}{
		{jsonstream.Message{Status: "Pulling from library/busybox", ID: "latest"}, [3]int64{}},
		{jsonstream.Message{Status: "Already exists", ID: "b"}, [3]int64{}},
		{jsonstream.Message{Status: "Pulling fs layer", ID: "a", Progress: &jsonstream.Progress{}}, [3]int64{}},
		{jsonstream.Message{Status: "Downloading", ID: "a", Progress: &jsonstream.Progress{Current: 3, Total: 8}},
			[3]int64{3, 8, 0}},
		{jsonstream.Message{Status: "Download complete", ID: "a", Progress: &jsonstream.Progress{}}, [3]int64{8, 8, 0}},
		{jsonstream.Message{Status: "Extracting", ID: "a", Progress: &jsonstream.Progress{Current: 5, Total: 8}},
			[3]int64{8, 8, 5}},
		{jsonstream.Message{Status: "Extracting", ID: "a", Progress: &jsonstream.Progress{Current: 2, Units: "s"}},
			[3]int64{8, 8, 5}},
		{jsonstream.Message{Status: "Pull complete", ID: "a", Progress: &jsonstream.Progress{}}, [3]int64{8, 8, 8}},
	} {
		note(test.message)
		fetched, total, unpacked := s.PullProgress("docker.io/library/busybox:latest")
		if got := [3]int64{fetched, total, unpacked}; got != test.want {
			t.Errorf("after %q: %d, want %d", test.message.Status, got, test.want)
		}
	}
	end()
	if _, total, _ := s.PullProgress("busybox"); total != 0 {
		t.Error("a pull that has ended has progress")
	}
}
