package supply

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"leasehold/internal/test/built"
)

func TestTheBillOfMaterialsHasEveryLinkedModule(t *testing.T) {
	program, err := built.Leasehold()
	if err != nil {
		t.Fatal(err)
	}
	bom, err := BillOfMaterials(program)
	if err != nil {
		t.Fatal(err)
	}
	var written bytes.Buffer
	if err := cdx.NewBOMEncoder(&written, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		t.Fatal(err)
	}
	// What was written is read as any other program would read it.
	var got struct {
		BOMFormat, SpecVersion string
		Metadata               struct {
			Component struct {
				Name   string
				Hashes []struct{ Alg, Content string }
			}
		}
		Components   []struct{ Name, Version, Purl string }
		Dependencies []struct{ DependsOn []string }
	}
	if err := json.Unmarshal(written.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if got.BOMFormat != "CycloneDX" || got.SpecVersion == "" || got.Metadata.Component.Name != "leasehold" || len(got.Metadata.Component.Hashes) != 1 {
		t.Errorf("the head is %+v", got)
	}

	modules, err := Modules()
	if err != nil {
		t.Fatal(err)
	}
	var want, named []string
	for _, m := range modules {
		want = append(want, m.Path+" "+m.Version)
	}
	for _, c := range got.Components {
		if c.Name == "std" && c.Version != "" {
			continue
		}
		named = append(named, c.Name+" "+c.Version)
		if want := "pkg:golang/" + c.Name + "@" + c.Version; c.Purl != want {
			t.Errorf("%s is named %q, want %q", c.Name, c.Purl, want)
		}
	}
	slices.Sort(named)
	slices.Sort(want)
	if !slices.Equal(named, want) {
		t.Errorf("the program has\n%s\nbut its source needs\n%s", strings.Join(named, "\n"), strings.Join(want, "\n"))
	}
	if len(named) != len(got.Components)-1 {
		t.Errorf("%d of %d components are modules, want all but the standard library", len(named), len(got.Components))
	}
	if len(got.Dependencies) != 1 || len(got.Dependencies[0].DependsOn) != len(got.Components) {
		t.Errorf("the dependencies are %+v, want all %d components", got.Dependencies, len(got.Components))
	}

	again, err := BillOfMaterials(program)
	if err != nil {
		t.Fatal(err)
	}
	var second bytes.Buffer
	if err := cdx.NewBOMEncoder(&second, cdx.BOMFileFormatJSON).SetPretty(true).Encode(again); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(written.Bytes(), second.Bytes()) {
		t.Error("one program has two descriptions")
	}
}

func TestWhatIsNoProgramIsRefused(t *testing.T) {
	if _, err := BillOfMaterials("supply.go"); err == nil || !strings.Contains(err.Error(), "supply.go has no build information") {
		t.Errorf("a source file: %v", err)
	}
}
