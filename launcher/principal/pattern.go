package principal

import (
	"fmt"
	"regexp"
	"strings"
)

// Patterns say for which profiles a principal's role is. In a pattern, "*" stands for any
// characters, or none. Without patterns the role is for no profile.
type Patterns []string

// EveryProfile are the patterns for all profiles.
var EveryProfile = Patterns{"*"}

// pattern is the form of a pattern: a profile id with "*" in it.
var pattern = regexp.MustCompile(`^[A-Za-z0-9._*-]{1,128}$`)

// ParsePatterns checks the patterns of a configuration.
func ParsePatterns(texts []string) (Patterns, error) {
	if len(texts) == 0 {
		return nil, fmt.Errorf(`no profiles: want patterns such as shop_*, or "*" for all`)
	}
	for _, p := range texts {
		if !pattern.MatchString(p) {
			return nil, fmt.Errorf("profiles %q: want 1 to 128 of A-Z a-z 0-9 . _ - and * for any characters", p)
		}
	}
	return Patterns(texts), nil
}

// Match tells whether one of the patterns is of this profile.
func (ps Patterns) Match(profileID string) bool {
	for _, p := range ps {
		if matches(p, profileID) {
			return true
		}
	}
	return false
}

// matches compares from both ends, and finds what is between two stars from the left. It never
// backtracks, so a hostile pattern costs nothing.
func matches(pattern, id string) bool {
	first, rest, starred := strings.Cut(pattern, "*")
	if !starred {
		return pattern == id
	}
	if !strings.HasPrefix(id, first) {
		return false
	}
	id = id[len(first):]
	for {
		part, after, more := strings.Cut(rest, "*")
		if !more {
			return strings.HasSuffix(id, part)
		}
		at := strings.Index(id, part)
		if at < 0 {
			return false
		}
		id, rest = id[at+len(part):], after
	}
}
