package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// archive is the part of tar(1) that kubectl cp uses in a container:
//
//	tar cf - PATH...
//	tar [--no-same-OWNER...] -xmf - [-C DIR]
func archive(args []string) error {
	var mode, dir string
	var paths []string
	for i := 0; i < len(args); i++ {
		switch arg := args[i]; {
		case strings.HasPrefix(arg, "--"):
		case arg == "-C" && i+1 < len(args):
			i++
			dir = args[i]
		case mode == "":
			mode = strings.TrimPrefix(arg, "-")
		case arg != "-":
			paths = append(paths, arg)
		}
	}
	switch {
	case strings.HasPrefix(mode, "c"):
		return pack(os.Stdout, paths)
	case strings.HasPrefix(mode, "x"):
		return unpack(os.Stdin, dir)
	}
	return errUsage
}

func pack(to io.Writer, paths []string) error {
	w := tar.NewWriter(to)
	for _, path := range paths {
		err := filepath.WalkDir(path, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := entry.Info()
			if err != nil {
				return err
			}
			header, err := tar.FileInfoHeader(info, "")
			if err != nil {
				return err
			}
			header.Name = strings.TrimPrefix(path, "/")
			if err := w.WriteHeader(header); err != nil || !info.Mode().IsRegular() {
				return err
			}
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			_, err = w.Write(content)
			return err
		})
		if err != nil {
			return err
		}
	}
	return w.Close()
}

func unpack(from io.Reader, dir string) error {
	for r := tar.NewReader(from); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		path := filepath.Join(dir, header.Name)
		// kubectl sends entries only for empty directories.
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		switch header.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(path, 0o755)
		case tar.TypeReg:
			var content []byte
			if content, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(path, content, header.FileInfo().Mode().Perm())
			}
		default:
			err = fmt.Errorf("%s: neither a file nor a directory", header.Name)
		}
		if err != nil {
			return err
		}
	}
}
