// Package recorder keeps the last of what went on in a session's browser: the
// commands that workers sent, the requests that pages made, and what their consoles
// printed. Each recorder is bounded, leaves secrets out, and returns its content as
// a part of a bundle of evidence.
package recorder

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"leasehold/evidence/redact"
)

// recorded is the form of the parts that recorders make.
type recorded[T any] struct {
	// Total counts everything that happened; Dropped what came before Entries.
	Total   int `json:"total"`
	Dropped int `json:"dropped"`
	Entries []T `json:"entries"`
}

func encodeRecorded[T any](total int, entries []T) []byte {
	if entries == nil {
		entries = []T{}
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false) // people read URLs in it
	e.SetIndent("", " ")
	if err := e.Encode(recorded[T]{Total: total, Dropped: total - len(entries), Entries: entries}); err != nil {
		// The entries are texts, numbers and times: only a year past 9999.
		return fmt.Appendf(nil, "{\"error\":%q}\n", err.Error())
	}
	return out.Bytes()
}

// bareURL is redact.URL without the fragment, and short: it is for what is recorded
// by the hundred.
func bareURL(raw string) string {
	s, _, _ := strings.Cut(redact.URL(raw), "#")
	return redact.Clip(s, 500)
}

var (
	urlInText = regexp.MustCompile(`[A-Za-z][A-Za-z0-9+.-]*://[^\s'"<>]+|(?:data|javascript|blob):[^\s'"<>]+`)
	plainWord = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,63}$`)
	plainID   = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)
)

// ident returns a text that could be an id that the browser made.
func ident(s string) string {
	if s == "" || plainID.MatchString(s) {
		return s
	}
	return redact.Mark
}

// word returns a text that is one plain word of a protocol, or says that it was
// none.
func word(s string) string {
	if s == "" || plainWord.MatchString(s) {
		return s
	}
	return redact.Mark
}

// browserText redacts a text that the browser made, not the page: the URLs in it.
func browserText(s string) string {
	return redact.Clip(urlInText.ReplaceAllStringFunc(s, bareURL), 300)
}
