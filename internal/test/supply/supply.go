// Package supply looks at what the sidecar is made of: which modules are linked into
// it, and under which licences.
package supply

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// Command is the import path of the sidecar's program.
const Command = "leasehold/cmd/leasehold"

// Module is one module of which packages are linked into the sidecar.
type Module struct {
	Path    string
	Version string
	// Dir is where its files lie in the module cache.
	Dir string
	// Packages are the directories of the packages that are linked.
	Packages []string
}

// Modules lists the modules that are linked into the sidecar on this platform, sorted by
// path, without the project itself and the standard library. It asks the go command, which
// reads the module cache.
func Modules() ([]Module, error) {
	cmd := exec.Command("go", "list", "-deps", "-json=Dir,Module", Command)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the packages of %s: %w\n%s", Command, err, stderr.Bytes())
	}
	byPath := map[string]*Module{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Dir    string
			Module *struct {
				Path, Version, Dir string
				Main               bool
				Replace            *struct{ Path, Version string }
			}
		}
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("reading the packages of %s: %w", Command, err)
		}
		if p.Module == nil || p.Module.Main {
			continue
		}
		m := byPath[p.Module.Path]
		if m == nil {
			m = &Module{Path: p.Module.Path, Version: p.Module.Version, Dir: p.Module.Dir}
			if r := p.Module.Replace; r != nil {
				m.Path, m.Version = r.Path, r.Version
			}
			byPath[p.Module.Path] = m
		}
		m.Packages = append(m.Packages, p.Dir)
	}
	var all []Module
	for _, m := range byPath {
		all = append(all, *m)
	}
	slices.SortFunc(all, func(a, b Module) int { return cmp.Compare(a.Path, b.Path) })
	return all, nil
}

// BillOfMaterials describes a program that the go command built, from what is written in
// it: the module it is of, the modules that are linked into it, and Go's own library.
// It has no time and no random number, so that one program has one description.
func BillOfMaterials(program string) (*cdx.BOM, error) {
	content, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	info, err := buildinfo.Read(bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("%s has no build information: %w", program, err)
	}
	sum := sha256.Sum256(content)

	settings := []cdx.Property{{Name: "go:path", Value: info.Path}, {Name: "go:version", Value: info.GoVersion}}
	for _, s := range info.Settings {
		settings = append(settings, cdx.Property{Name: "go:build:" + s.Key, Value: s.Value})
	}
	main := cdx.Component{
		Type: cdx.ComponentTypeApplication, Name: info.Main.Path, Version: info.Main.Version,
		BOMRef: info.Main.Path, PackageURL: packageURL(info.Main.Path, info.Main.Version),
		Hashes:     &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
		Properties: &settings,
	}

	parts := []cdx.Component{library("std", strings.TrimPrefix(info.GoVersion, "go"), "")}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		parts = append(parts, library(m.Path, m.Version, m.Sum))
	}
	// What uses what among the parts is not written in a program; that it uses them is.
	refs := make([]string, len(parts))
	for i, p := range parts {
		refs[i] = p.BOMRef
	}

	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &main}
	bom.Components = &parts
	bom.Dependencies = &[]cdx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}
	return bom, nil
}

// library describes a module. The checksum is that of go.sum, which is over the files of
// the module and not over an archive, so it is no hash in the sense of CycloneDX.
func library(module, version, sum string) cdx.Component {
	url := packageURL(module, version)
	c := cdx.Component{Type: cdx.ComponentTypeLibrary, Name: module, Version: version, BOMRef: url, PackageURL: url,
		Scope: cdx.ScopeRequired}
	if sum != "" {
		c.Properties = &[]cdx.Property{{Name: "go:sum", Value: sum}}
	}
	return c
}

// packageURL names a module as vulnerability scanners look it up.
func packageURL(module, version string) string {
	return "pkg:golang/" + path.Clean(module) + "@" + strings.ReplaceAll(version, "+", "%2B")
}
