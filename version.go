// Package leasehold says which version of the program this is.
package leasehold

import (
	_ "embed"
	"strings"
)

//go:embed VERSION
var version string

// Version is the semantic version, such as 0.1.0: that of the next release, until it is made.
var Version = strings.TrimSpace(version)
