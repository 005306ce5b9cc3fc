package lease

import (
	"strings"
	"testing"
)

// TestFilesOfProfilesHaveNames: each profile id that is accepted gives a name that a file system
// takes, with a prefix and an ending, and that no other profile has.
func TestFilesOfProfilesHaveNames(t *testing.T) {
	const room = 255 - len(".new-1234567890") - len(".lasting.json.noted")
	seen := map[string]string{}
	for dots := range 128 {
		for _, last := range []string{"y", "z"} {
			id := "p" + strings.Repeat(".", dots) + strings.Repeat("x", 126-min(dots, 126)) + last
			if CheckProfileID(id) != nil {
				continue
			}
			name := FileName(id)
			if len(name) > room || strings.ContainsAny(name, "./") {
				t.Errorf("%s: %s has %d bytes, and there is room for %d", id, name, len(name), room)
			}
			if other, is := seen[name]; is {
				t.Errorf("%s and %s have the same name", id, other)
			}
			seen[name] = id
		}
	}
	if len(seen) < 200 || FileName("shop.18") != Key("shop.18") {
		t.Errorf("%d names, and %s", len(seen), FileName("shop.18"))
	}
}
