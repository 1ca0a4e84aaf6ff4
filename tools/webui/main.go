// Command webui builds the web page of "berth ui": it bundles the TypeScript below web/src with the libraries below
// web/vendor, and writes compressed files.
//
//	webui WEB OUT
//
// WEB is the directory web of the project. OUT is the directory for the files. The same sources give the same bytes.
package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: webui WEB OUT")
		os.Exit(2)
	}
	if err := build(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "webui:", err)
		os.Exit(1)
	}
}

func build(web, out string) error {
	web, err := filepath.Abs(web)
	if err != nil {
		return err
	}
	files := map[string][]byte{}
	for _, exported := range []bool{false, true} {
		if err := bundle(web, exported, files); err != nil {
			return err
		}
	}
	if files["index.html"], err = os.ReadFile(filepath.Join(web, "src", "index.html")); err != nil {
		return err
	}
	if files["licences.txt"], err = licences(filepath.Join(web, "vendor")); err != nil {
		return err
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for name, content := range files {
		if err := write(filepath.Join(out, name+".gz"), content); err != nil {
			return err
		}
	}
	return nil
}

// bundle adds the scripts and styles of the page to files. The page of an export is one script, export.js, because it
// becomes a single file. It has the same styles.
func bundle(web string, exported bool, files map[string][]byte) error {
	options := api.BuildOptions{
		AbsWorkingDir:     web,
		EntryPoints:       []string{"src/main.tsx"},
		Outdir:            "out",
		Bundle:            true,
		Splitting:         !exported,
		Format:            api.FormatESModule,
		Target:            api.ES2022,
		Charset:           api.CharsetUTF8,
		JSX:               api.JSXAutomatic,
		JSXImportSource:   "preact",
		Define:            map[string]string{"EXPORTED": strconv.FormatBool(exported)},
		NodePaths:         []string{filepath.Join(web, "vendor")},
		MinifyWhitespace:  true,
		MinifyIdentifiers: true,
		MinifySyntax:      true,
		LegalComments:     api.LegalCommentsNone, // licences.txt has the licences
		LogLevel:          api.LogLevelInfo,
	}
	if exported {
		options.Format = api.FormatIIFE
	}
	result := api.Build(options)
	if len(result.Errors) > 0 {
		return fmt.Errorf("bundle %s: %d errors, see above", web, len(result.Errors))
	}
	for _, f := range result.OutputFiles {
		name := filepath.Base(f.Path)
		if exported {
			if name != "main.js" {
				continue
			}
			name = "export.js"
		}
		files[name] = f.Contents
	}
	return nil
}

// licences joins the licences of the vendored libraries, each below the library's name.
func licences(vendor string) ([]byte, error) {
	var paths []string
	err := filepath.WalkDir(vendor, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == "LICENSE" {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	slices.Sort(paths)
	var text strings.Builder
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		name, err := filepath.Rel(vendor, filepath.Dir(path))
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&text, "%s\n\n%s\n\n", name, strings.TrimSpace(string(content)))
	}
	return []byte(text.String()), nil
}

func write(path string, content []byte) error {
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(content); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, packed.Bytes(), 0o644)
}
