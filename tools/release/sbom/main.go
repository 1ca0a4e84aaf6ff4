// Command sbom prints the software bill of materials of a release as CycloneDX JSON. It lists the Go modules of the
// program, the programs that it carries, their Go modules, and the C library in runc. The module versions come from the
// build information in the binaries, so the list shows what was linked, not what a go.mod file allows.
//
//	sbom -version VERSION -seccomp VERSION PROGRAM EMBEDDED...
//
// The date is SOURCE_DATE_EPOCH, in seconds since 1970. The same programs give the same bytes.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	version := flag.String("version", "", "the `version` of the release")
	seccomp := flag.String("seccomp", "", "the `version` of libseccomp in runc")
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	bom, err := list(*version, *seccomp, flag.Args())
	if err == nil {
		err = cdx.NewBOMEncoder(os.Stdout, cdx.BOMFileFormatJSON).SetPretty(true).
			EncodeVersion(bom, cdx.SpecVersion1_6)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// list returns the bill of the program files[0], which carries the other files.
func list(version, seccomp string, files []string) (*cdx.BOM, error) {
	seconds, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("read SOURCE_DATE_EPOCH: %w", err)
	}
	var parts []cdx.Component
	var needs []cdx.Dependency
	for i, file := range files {
		c, modules, err := program(file)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		if c.Name == "runc" && seccomp != "" {
			modules = append(modules, cdx.Component{BOMRef: "libseccomp", Type: cdx.ComponentTypeLibrary,
				Name: "libseccomp", Version: seccomp, PackageURL: "pkg:generic/libseccomp@" + seccomp})
		}
		if i == 0 {
			c.Version, c.PackageURL = version, ""
		}
		var refs []string
		for _, m := range modules {
			refs = append(refs, m.BOMRef)
		}
		if i == 0 {
			for _, embedded := range files[1:] {
				refs = append(refs, filepath.Base(embedded))
			}
		}
		needs = append(needs, cdx.Dependency{Ref: c.BOMRef, Dependencies: &refs})
		parts = append(parts, c)
		parts = append(parts, modules...)
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Timestamp: time.Unix(seconds, 0).UTC().Format(time.RFC3339), Component: &parts[0]}
	others := unique(parts[1:])
	bom.Components, bom.Dependencies = &others, &needs
	return bom, nil
}

// program describes an executable file and the modules in it. A program that is not written in Go has none.
func program(file string) (cdx.Component, []cdx.Component, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return cdx.Component{}, nil, err
	}
	name := filepath.Base(file)
	c := cdx.Component{BOMRef: name, Type: cdx.ComponentTypeApplication, Name: name,
		Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: fmt.Sprintf("%x", sha256.Sum256(text))}}}
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		if name == "holder" { // written in C
			return c, nil, nil
		}
		return c, nil, err
	}
	modules := []cdx.Component{{BOMRef: "std@" + info.GoVersion, Type: cdx.ComponentTypeLibrary, Name: "std",
		Version: info.GoVersion, PackageURL: "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go")}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		modules = append(modules, module(m.Path, m.Version))
	}
	if info.Main.Version != "" && info.Main.Version != "(devel)" {
		c.Version, c.PackageURL = info.Main.Version, "pkg:golang/"+info.Main.Path+"@"+info.Main.Version
	}
	return c, modules, nil
}

func module(path, version string) cdx.Component {
	return cdx.Component{BOMRef: path + "@" + version, Type: cdx.ComponentTypeLibrary, Name: path, Version: version,
		PackageURL: "pkg:golang/" + path + "@" + version}
}

// unique keeps the first component of each reference.
func unique(all []cdx.Component) []cdx.Component {
	seen := map[string]bool{}
	var kept []cdx.Component
	for _, c := range all {
		if !seen[c.BOMRef] {
			seen[c.BOMRef] = true
			kept = append(kept, c)
		}
	}
	return kept
}
