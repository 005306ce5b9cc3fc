//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A launcher keeps the id that it once had: under another one its own profiles would have a home that is gone.
func TestALauncherKeepsItsID(t *testing.T) {
	c := RunConfig{DataDir: t.TempDir()}
	made, err := ownID(c)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(c.DataDir, "launcher-id")
	for what, tt := range map[string]struct {
		content string
		want    string // empty: it is refused
	}{
		"as it was":        {made + "\n", made},
		"without its line": {made, made},
		"another":          {"host-1\n", "host-1"},
		"empty":            {"", ""},
		"damaged":          {"\x00\x00\x00\x00\n", ""},
	} {
		if err := os.WriteFile(path, []byte(tt.content), 0o600); err != nil {
			t.Fatal(err)
		}
		name, err := ownID(c)
		if name != tt.want || (err == nil) != (tt.want != "") || err != nil && !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %q, %v; want %q", what, name, err, tt.want)
		}
		if left, err := os.ReadFile(path); err != nil || string(left) != tt.content {
			t.Errorf("%s: then it has %q, %v", what, left, err)
		}
	}
}
