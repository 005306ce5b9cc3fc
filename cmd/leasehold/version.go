package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"leasehold"
)

type versionCmd struct {
	JSON bool `name:"json" help:"Print JSON."`
}

// buildVersion is the version, and what the go command has written into the binary.
type buildVersion struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
}

func readBuildVersion() buildVersion {
	v := buildVersion{Version: leasehold.Version, Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = s.Value
		case "vcs.modified":
			v.Modified = s.Value == "true"
		}
	}
	return v
}

// String is the version in one line: leasehold 0.1.0 (commit 0123456789ab, go1.26.5). A commit with
// changes that are not in it has a plus sign.
func (v buildVersion) String() string {
	commit := ""
	if v.Revision != "" {
		commit = "commit " + v.Revision[:min(12, len(v.Revision))]
		if v.Modified {
			commit += "+"
		}
		commit += ", "
	}
	return fmt.Sprintf("leasehold %s (%s%s)", v.Version, commit, v.Go)
}

// Run prints the version.
func (c *versionCmd) Run(a *app) error {
	v := readBuildVersion()
	if c.JSON {
		return a.printValue(v)
	}
	_, err := fmt.Fprintln(a.stdout, v)
	return err
}
