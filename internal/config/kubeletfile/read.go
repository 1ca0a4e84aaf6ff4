package kubeletfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/kubelet/config/v1beta1"

	"github.com/berth-run/berth/internal/base/document"
)

// Read reads the file, then the .conf files of the directory and its subdirectories, in the order of their
// paths.
func Read(file, dir string) ([]Layer, []Warning, error) {
	var layers []Layer
	var skipped []Warning
	var errs []error
	read := func(path string) {
		l, err := readLayer(path)
		layers, errs, skipped = append(layers, l), append(errs, err), append(skipped, l.Ignored...)
	}
	if file != "" {
		read(file)
	}
	if dir != "" {
		if len(layers) > 0 && errs[0] == nil {
			layers = append(layers, beforeDropIns(layers[0].config))
		}
		errs = append(errs, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return fmt.Errorf("read configuration directory: %w", err)
			case e.IsDir():
			case filepath.Ext(path) == ".conf":
				read(path)
			default:
				skipped = append(skipped, Warning{Origin: path, Text: "is ignored: only .conf files are read"})
			}
			return nil
		}))
	}
	return layers, skipped, errors.Join(errs...)
}

func readLayer(path string) (Layer, error) {
	file, err := os.Open(path)
	if err != nil {
		return Layer{}, fmt.Errorf("read configuration: %w", err)
	}
	defer file.Close()
	text, err := document.ReadAll(file)
	if err != nil {
		return Layer{}, fmt.Errorf("read configuration %s: %w", path, err)
	}
	return Parse(path, text)
}

// Anchor makes relative paths absolute. A relative path starts at the directory of the file that contains it, as for
// the kubelet.
func Anchor(kc *v1beta1.KubeletConfiguration, origin map[string]string) error {
	paths := map[string]*string{
		"staticPodPath": &kc.StaticPodPath, "tlsCertFile": &kc.TLSCertFile, "tlsPrivateKeyFile": &kc.TLSPrivateKeyFile,
		"authentication.x509.clientCAFile": &kc.Authentication.X509.ClientCAFile,
	}
	if kc.ResolverConfig != nil {
		paths["resolvConf"] = kc.ResolverConfig
	}
	for field, path := range paths {
		if *path == "" || filepath.IsAbs(*path) {
			continue
		}
		dir, err := filepath.Abs(filepath.Dir(origin[field]))
		if err != nil {
			return err
		}
		*path = filepath.Join(dir, *path)
	}
	return nil
}
