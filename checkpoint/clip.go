package checkpoint

import "strings"

// MaxText is the longest text, in bytes, that a journal entry or a lease record
// keeps of what pages and workers say: a record has to fit into one NATS message.
const MaxText = 2048

// Clip cuts a text to MaxText bytes, at the start of a character.
func Clip(s string) string {
	if len(s) > MaxText {
		return strings.ToValidUTF8(s[:MaxText], "")
	}
	return s
}
