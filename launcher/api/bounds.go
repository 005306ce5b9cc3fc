package api

import (
	"strings"

	"leasehold/lease"
)

// maxManifest is the most bytes that a manifest may take as JSON: it is kept in the session's
// file.
const maxManifest = 64 << 10

// CheckName refuses a name of somebody or something that a record could not keep, or that would
// disturb a log. field is the field that has it.
func CheckName(field, name string) error {
	if len(name) > lease.MaxName || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return Invalid(field, "want at most %d bytes and no control characters", lease.MaxName)
	}
	return nil
}

// CheckPerson is CheckName for a person who has to be named. who says who that is.
func CheckPerson(field, name, who string) error {
	if name == "" {
		return Invalid(field, "want the name of %s", who)
	}
	return CheckName(field, name)
}

// CheckNote refuses a person's note that is too long for a record and its event.
func CheckNote(note string) error {
	if len(note) > lease.MaxNote {
		return Invalid("note", "it has %d bytes: want at most %d", len(note), lease.MaxNote)
	}
	return nil
}

// checkSize refuses a manifest that is too long for the session's file.
func (m Manifest) checkSize() error {
	b, err := lease.Encode(m)
	if err != nil {
		return Invalid("", "%v", err)
	}
	if len(b) <= maxManifest {
		return nil
	}
	largest, most := "", 0
	for name, list := range map[string][]string{
		"allowed_actions": m.AllowedActions, "chrome_args": m.ChromeArgs, "expected_domains": m.ExpectedDomains,
		"fence_header_origins": m.FenceHeaderOrigins, "sensitive_urls": m.SensitiveURLs, "sensitive_words": m.SensitiveWords,
	} {
		if n := len(strings.Join(list, `","`)); n > most || n == most && name < largest {
			largest, most = name, n
		}
	}
	return Invalid(largest, "it takes most of the manifest's %d bytes: want at most %d for all of them", len(b), maxManifest)
}
