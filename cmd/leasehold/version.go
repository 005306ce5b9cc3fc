package main

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
)

type versionCmd struct {
	JSON bool `name:"json" help:"Print JSON."`
}

// buildVersion is what the go command wrote into the binary.
type buildVersion struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
}

func readBuildVersion() buildVersion {
	v := buildVersion{Version: "unknown", Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Version = info.Main.Version
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

// Run prints one line.
func (c *versionCmd) Run(a *app) error {
	v := readBuildVersion()
	if c.JSON {
		raw, err := json.Marshal(v)
		return printed(a, raw, err)
	}
	_, err := fmt.Fprintf(a.stdout, "leasehold %s (%s)\n", v.Version, v.Go)
	return err
}
