package csi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-run/berth/internal/base/safepath"
	"github.com/berth-run/berth/internal/pod/steps/volume"
)

// dirName is the kubelet's name of the directory for CSI volumes in a pod's directory.
const dirName = "kubernetes.io~csi"

// layout has the places of volumes below the agent's directory. They are the kubelet's.
type layout string

// paths are the places of a volume's shared part.
type paths struct {
	data    string // the directory of vol_data.json
	staging string
	publish string // for a block device: the directory with one published file for each pod
}

func (l layout) paths(id identity) paths {
	base := filepath.Join(string(l), "plugins", "kubernetes.io", "csi")
	if id.Block != "" {
		base = filepath.Join(base, "volumeDevices")
		return paths{data: filepath.Join(base, id.Block, "data"), staging: filepath.Join(base, "staging", id.Block),
			publish: filepath.Join(base, "publish", id.Block)}
	}
	base = filepath.Join(base, id.Driver, hash(id.Handle))
	return paths{data: base, staging: filepath.Join(base, "globalmount")}
}

// remove deletes the files of a shared part that is not mounted any more.
func (p paths) remove(id identity) error {
	if id.Block == "" {
		return remove(p.data, filepath.Base(p.staging), dataFile)
	}
	return errors.Join(remove(p.staging), remove(p.publish), remove(p.data, dataFile),
		remove(filepath.Dir(p.data), "dev"))
}

// place identifies a volume in a pod's directory. Its path gives all fields.
type place struct {
	uid types.UID
	// block is the name of the PersistentVolume for a device, and "" for a file system.
	block string
	// path is the path that Publish returned. dir is the directory with vol_data.json.
	path, dir string
}

func (l layout) placeOf(target string) place {
	sort := filepath.Dir(filepath.Dir(target)) // volumes or volumeDevices
	p := place{uid: types.UID(filepath.Base(filepath.Dir(sort))), path: filepath.Join(target, mountName), dir: target}
	if filepath.Base(sort) == "volumeDevices" {
		p.block = filepath.Base(target)
		at := l.paths(identity{Block: p.block})
		p.path, p.dir = filepath.Join(at.publish, string(p.uid)), at.data
	}
	return p
}

// Uses returns the mounted volumes of pods that share a part, from the vol_data.json files. A kubelet writes these too.
func (l layout) Uses() (all []volume.Use, err error) {
	found, _ := filepath.Glob(filepath.Join(string(l), "pods", "*", "volume*", dirName,
		"*")) // an error would mean a bad pattern
	for _, target := range found {
		at := l.placeOf(target)
		saved, ok, loadErr := load(at.dir)
		if loadErr != nil || !ok || saved.Mode == string(storagev1.VolumeLifecycleEphemeral) {
			err = errors.Join(err, loadErr)
			continue
		}
		id := identity{Driver: saved.Driver, Handle: saved.Handle, Block: at.block}
		if checkErr := id.check(); checkErr != nil {
			err = errors.Join(err, fmt.Errorf("read mounted volume from %s: %w", at.dir, checkErr))
			continue
		}
		all = append(all, volume.Use{StageID: id.String(), UID: at.uid, Volume: filepath.Base(target)})
	}
	return all, err
}

// idFile is the name of the file where package volume keeps the StageID.
const idFile = "id"

func readID(name string) (id identity, err error) {
	text, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(text, &id)
	}
	if err == nil {
		err = id.check()
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("read staged volume from %s: %w", name, err)
	}
	return id, err
}

// unmap removes mounts and devices that only a kubelet makes for a device: a bind mount for each pod, and a loop device
// on it that keeps it busy.
func unmap(at place) error {
	bind := filepath.Join(filepath.Dir(at.dir), "dev", string(at.uid))
	if err := volume.DetachLoops(bind); err != nil {
		return err
	}
	if err := volume.Unmount(bind); err != nil {
		return err
	}
	return safepath.IgnoreMissing(os.Remove(bind))
}

// forget deletes the files of a pod's volume that is not mounted any more.
func forget(at place, target string) error {
	if at.block == "" {
		return remove(target, mountName, dataFile)
	}
	if err := unmap(at); err != nil { // vol_data.json stays: all pods that use the device share it
		return err
	}
	return errors.Join(safepath.IgnoreMissing(os.Remove(at.path)), safepath.IgnoreMissing(os.Remove(target)))
}
