package critest

import (
	"slices"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (e Env) image(t *testing.T, ref string) *runtimeapi.Image {
	t.Helper()
	resp, err := e.Client.Images.ImageStatus(t.Context(),
		&runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
	if err != nil {
		t.Fatal(err)
	}
	return resp.Image
}

func testImageStatus(t *testing.T, env Env) {
	byName := env.image(t, env.Image)
	if byName == nil {
		t.Fatalf("image %s is unknown", env.Image)
	}
	if !slices.Contains(byName.RepoTags, env.Image) {
		t.Errorf("tags %q", byName.RepoTags)
	}
	if byID := env.image(t, byName.Id); byID.GetId() != byName.Id {
		t.Errorf("status of the image by its id: %s", byID)
	}
	resp, err := env.Client.Images.ListImages(t.Context(), &runtimeapi.ListImagesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(resp.Images, func(i *runtimeapi.Image) bool { return i.Id == byName.Id }) {
		t.Errorf("image %s is not listed: %s", byName.Id, resp.Images)
	}
	info, err := env.Client.Images.ImageFsInfo(t.Context(), &runtimeapi.ImageFsInfoRequest{})
	if err != nil || len(info.ImageFilesystems) == 0 || info.ImageFilesystems[0].GetFsId().GetMountpoint() == "" {
		t.Errorf("image file system: %s, %v", info, err)
	}
	p := env.runPod(t, "image")
	if got := env.container(t, p.create(t, p.containerConfig("c"))).ImageRef; got != byName.Id &&
		!slices.Contains(byName.RepoDigests, got) {
		t.Errorf("a container's image reference %q is neither the image's id nor a digest of it", got)
	}
}

func testImageUnknown(t *testing.T, env Env) {
	const ref = "berth.test/absent:1"
	if got := env.image(t, ref); got != nil {
		t.Errorf("status of an unknown image: %s", got)
	}
	if _, err := env.Client.Images.RemoveImage(t.Context(),
		&runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: ref}}); err != nil {
		t.Errorf("remove an unknown image: %v", err)
	}
	p := env.runPod(t, "absent")
	config := p.containerConfig("c")
	config.Image.Image = ref
	if resp, err := p.tryCreate(t, config); err == nil {
		t.Errorf("a container of an unknown image was created: %s", resp)
	}
}
