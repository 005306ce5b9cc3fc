// Command sbom writes the bill of materials of a program, in CycloneDX's JSON, to the
// standard output: sbom bin/leasehold.
package main

import (
	"fmt"
	"os"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"leasehold/internal/test/supply"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: sbom PROGRAM")
		os.Exit(2)
	}
	bom, err := supply.BillOfMaterials(os.Args[1])
	if err == nil {
		err = cdx.NewBOMEncoder(os.Stdout, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}
