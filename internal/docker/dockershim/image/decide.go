package image

import (
	"slices"
	"strconv"
	"strings"

	"github.com/distribution/reference"
	"github.com/moby/moby/api/types/image"
	"github.com/moby/moby/api/types/jsonstream"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// familiar returns a name as the Engine stores it. For a name with a tag and a digest, the Engine stores the digest
// alone.
func familiar(name string) string {
	named, err := reference.ParseDockerRef(name)
	if err != nil || isID(name) {
		return name
	}
	return named.String()
}

// normalized returns names in full, with the registry. It leaves out <none>, which stands for a name that the image has
// lost.
func normalized(names []string) (all []string) {
	for _, name := range names {
		if strings.Contains(name, "<none>") {
			continue
		}
		if named, err := reference.ParseNormalizedNamed(name); err == nil {
			name = named.String()
		}
		all = append(all, name)
	}
	return all
}

// summary converts an image of the Engine's list.
func summary(i *image.Summary, pinned string) *runtimeapi.Image {
	tags := normalized(i.RepoTags)
	return &runtimeapi.Image{Id: i.ID, RepoTags: tags, RepoDigests: normalized(i.RepoDigests),
		Size: uint64(max(i.Size, 0)), Spec: &runtimeapi.ImageSpec{}, Pinned: isPinned(tags, pinned)}
}

// inspected converts an image with its user.
func inspected(i *image.InspectResponse, pinned string) *runtimeapi.Image {
	tags := normalized(i.RepoTags)
	converted := &runtimeapi.Image{Id: i.ID, RepoTags: tags, RepoDigests: normalized(i.RepoDigests),
		Size: uint64(max(i.Size, 0)), Spec: &runtimeapi.ImageSpec{}, Pinned: isPinned(tags, pinned)}
	if i.Config == nil {
		return converted
	}
	user, _, _ := strings.Cut(i.Config.User, ":")
	if uid, err := strconv.ParseInt(user, 10, 64); err == nil {
		converted.Uid = &runtimeapi.Int64Value{Value: uid}
	} else {
		converted.Username = user
	}
	return converted
}

func isPinned(tags []string, pinned string) bool {
	return slices.Contains(tags, familiar(pinned))
}

func usageOf(root string, bytes int64, inodes uint64) *runtimeapi.FilesystemUsage {
	return &runtimeapi.FilesystemUsage{FsId: &runtimeapi.FilesystemIdentifier{Mountpoint: root},
		UsedBytes: &runtimeapi.UInt64Value{Value: uint64(bytes)}, InodesUsed: &runtimeapi.UInt64Value{Value: inodes}}
}

// layer is how far a layer of a pulled image is, in compressed bytes.
type layer struct{ fetched, total, unpacked int64 }

// after returns how far a layer is after a message of the Engine. Layers that the Engine has already have no bytes.
func (l layer) after(m jsonstream.Message) layer {
	p := m.Progress
	if p == nil || p.Units != "" { // Engines with containerd's store count the seconds of the unpacking
		p = &jsonstream.Progress{}
	}
	switch m.Status {
	case "Downloading":
		l.fetched, l.total = p.Current, max(l.total, p.Total)
	case "Verifying Checksum", "Download complete":
		l.fetched = l.total
	case "Extracting":
		l.fetched, l.unpacked = l.total, max(l.unpacked, p.Current)
	case "Pull complete":
		l.fetched, l.unpacked = l.total, l.total
	}
	return l
}
