// Package release checks the files of a release that hack/release.sh has built:
//
//	go test -C tools/release ./... -release DIR
package release

import (
	"archive/tar"
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/sassoftware/go-rpmutils"
)

var dir = flag.String("release", "", "`directory` of a release")

// releaseFiles returns the files of the release with this ending. There is one for each architecture.
func releaseFiles(t *testing.T, ending string) []string {
	t.Helper()
	if *dir == "" {
		t.Skip("there is no -release: make packages")
	}
	found, err := filepath.Glob(filepath.Join(*dir, "*"+ending))
	if err != nil || len(found) == 0 {
		t.Fatalf("no %s in %s: %v", ending, *dir, err)
	}
	return found
}

// content lists the files of a package with their modes, "d" for a directory and "c" for a configuration file.
type content map[string]string

var manual = regexp.MustCompile(`^/usr/share/man/man1/berth[a-z-]*\.1\.gz$`)

// check compares the list with the files that both packages must have and with the files in more.
func (c content) check(t *testing.T, name string, more ...string) {
	t.Helper()
	want := append(more,
		"/etc/berth/config.yaml c644",
		"/etc/berth/manifests d755",
		"/usr/bin/berth 755",
		"/usr/lib/systemd/system/berth.service 644",
		"/usr/share/bash-completion/completions/berth 644",
		"/usr/share/doc/berth/berth.cdx.json 644",
		"/usr/share/fish/vendor_completions.d/berth.fish 644",
	)
	var got []string
	manuals := 0
	for path, mode := range c {
		if manual.MatchString(path) && mode == "644" {
			manuals++
		} else {
			got = append(got, path+" "+mode)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s has\n%s\nwant\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if _, ok := c["/usr/share/man/man1/berth-get-pods.1.gz"]; !ok || manuals < 40 {
		t.Errorf("%s has %d manual pages (berth-get-pods is one of them: %v), want one for each command",
			name, manuals, ok)
	}
}

// script returns a maintainer script of the repository.
func script(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../packaging/scripts", name))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

func TestDebHasTheFilesAndScripts(t *testing.T) {
	for _, file := range releaseFiles(t, ".deb") {
		control := unpack(t, "--ctrl-tarfile", file)
		for _, name := range []string{"postinst", "prerm", "postrm"} {
			if got := strings.TrimSpace(control[name].text); got != script(t, name) || control[name].mode != 0o755 {
				t.Errorf("%s: %s has mode %o and the text\n%s", file, name, control[name].mode, got)
			}
		}
		all := content{}
		for name, f := range unpack(t, "--fsys-tarfile", file) {
			path, kind := "/"+strings.Trim(name, "/"), ""
			switch {
			case f.dir && path != "/etc/berth/manifests":
				continue
			case f.dir:
				kind = "d"
			case slices.Contains(strings.Fields(control["conffiles"].text), path):
				kind = "c"
			}
			all[path] = fmt.Sprintf("%s%o", kind, f.mode)
		}
		all.check(t, file, "/usr/share/doc/berth/copyright 644", "/usr/share/zsh/vendor-completions/_berth 644")
		arch := strings.TrimSuffix(file[strings.LastIndex(file, "_")+1:], ".deb")
		for _, line := range []string{"Package: berth\n", "Architecture: " + arch + "\n"} {
			if !strings.Contains(control["control"].text, line) {
				t.Errorf("%s: the control file lacks %q:\n%s", file, line, control["control"].text)
			}
		}
	}
}

// member is a file of an archive.
type member struct {
	dir  bool
	mode int64
	text string // of files below 64 KiB
}

// unpack returns the members of a part of a .deb.
func unpack(t *testing.T, part, file string) map[string]member {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "dpkg-deb", part, file).Output()
	if err != nil {
		t.Fatalf("dpkg-deb %s: %v", part, err)
	}
	all := map[string]member{}
	for r := tar.NewReader(bytes.NewReader(out)); ; {
		h, err := r.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 {
			t.Errorf("%s: %s belongs to %d:%d, not to root", file, h.Name, h.Uid, h.Gid)
		}
		m := member{dir: h.Typeflag == tar.TypeDir, mode: h.Mode & 0o7777}
		if h.Size < 64<<10 {
			text, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}
			m.text = string(text)
		}
		all[strings.TrimPrefix(h.Name, "./")] = m
	}
}

func TestRPMHasTheFilesAndScripts(t *testing.T) {
	for _, file := range releaseFiles(t, ".rpm") {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		rpm, err := rpmutils.ReadRpm(f)
		if err != nil {
			t.Fatal(err)
		}
		for tag, name := range map[int]string{
			rpmutils.POSTIN: "postinst", rpmutils.PREUN: "prerm", rpmutils.POSTUN: "postrm",
		} {
			if got, err := rpm.Header.GetString(tag); err != nil || strings.TrimSpace(got) != script(t, name) {
				t.Errorf("%s: %s: error %v, text\n%s", file, name, err, got)
			}
		}
		files, err := rpm.Header.GetFiles()
		if err != nil {
			t.Fatal(err)
		}
		all := content{}
		for _, f := range files {
			kind := ""
			if f.Mode()&0o170000 == 0o040000 {
				kind = "d"
			}
			// RPMFILE_CONFIG and RPMFILE_NOREPLACE of rpm's file flags: an upgrade keeps a changed file.
			if f.Flags()&(1|1<<4) == 1|1<<4 {
				kind = "c"
			}
			if f.UserName() != "root" || f.GroupName() != "root" {
				t.Errorf("%s: %s belongs to %s:%s", file, f.Name(), f.UserName(), f.GroupName())
			}
			all[f.Name()] = fmt.Sprintf("%s%o", kind, f.Mode()&0o7777)
		}
		all.check(t, file, "/usr/share/licenses/berth/LICENSE 644", "/usr/share/zsh/site-functions/_berth 644")
	}
}

// The list is complete: each reference leads to a component, and the parts that Berth cannot run without are there.
func TestBillOfMaterialsIsComplete(t *testing.T) {
	for _, file := range releaseFiles(t, ".cdx.json") {
		f, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var bom cdx.BOM
		if err := cdx.NewBOMDecoder(f, cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
			t.Fatal(err)
		}
		byRef := map[string]bool{bom.Metadata.Component.BOMRef: true}
		versions := map[string]string{}
		for _, c := range *bom.Components {
			byRef[c.BOMRef] = true
			versions[c.Name] = c.Version
			if c.Type == cdx.ComponentTypeLibrary && (c.Version == "" || c.PackageURL == "") {
				t.Errorf("%s: %s has the version %q and the address %q", file, c.Name, c.Version, c.PackageURL)
			}
		}
		for _, d := range *bom.Dependencies {
			if d.Dependencies == nil {
				continue
			}
			for _, ref := range *d.Dependencies {
				if !byRef[ref] {
					t.Errorf("%s: %s needs %s, which is not listed", file, d.Ref, ref)
				}
			}
		}
		for _, name := range []string{"std", "k8s.io/api", "github.com/containerd/containerd/v2", "runc", "holder",
			"bridge", "host-local", "portmap", "containerd-shim-runc-v2", "libseccomp"} {
			if _, ok := versions[name]; !ok {
				t.Errorf("%s: %s is missing", file, name)
			}
		}
		if versions["libseccomp"] == "" || bom.Metadata.Component.Version == "" {
			t.Errorf("%s: libseccomp %q, release %q: a version is empty", file, versions["libseccomp"],
				bom.Metadata.Component.Version)
		}
	}
}
