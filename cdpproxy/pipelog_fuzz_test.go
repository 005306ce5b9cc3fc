package cdpproxy

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"leasehold/internal/test/testkey"
)

// FuzzPipeLog checks that any lines are read without a panic, and say the same after they
// were signed and after they were compacted; and that no file that nobody signed is whole.
func FuzzPipeLog(f *testing.F) {
	f.Add([]byte("open A 7\nattach A B\npause B 1 plain\npause B 2 auth\nsettle B 1\nopen C 0\nclose C\n"))
	f.Add([]byte("open A 7\nattach A A\nopen A 8\ndetach A\nclose A"))
	f.Add([]byte("open A 7\nopen B 8\nattach A B\nattach B A\npause A r plain\n"))
	f.Add([]byte("format 2\nopen O 0\nprivate O T\nclose O\n"))
	f.Add([]byte("open O 0\nprivate O T\nprivate O U\nclose O\ngone U\n"))
	f.Add([]byte("open A -1\nattach X Y\npause X\n\n \nopen A 7 8\nclose"))
	path := filepath.Join(f.TempDir(), "ledger")
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := OpenPipeLog(path, testkey.Key)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if len(describe(l.inherited)) > 0 || l.Whole() == bytes.ContainsRune(b, '\n') {
			t.Fatalf("%q is believed: %v, %v", b, l.Whole(), l.inherited)
		}

		want := describe(replay(b))
		var signed []byte
		chain := chainOf(path, testkey.Key)
		for line := range bytes.Lines(b) {
			if said, ended := bytes.CutSuffix(line, []byte("\n")); ended {
				signed = fmt.Appendf(signed, "%s %s\n", said, chain.Next(string(said)))
			}
		}
		if err := os.WriteFile(path, signed, 0o600); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time it is what OpenPipeLog has written
			l, err := OpenPipeLog(path, testkey.Key)
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			if got := describe(l.inherited); !slices.Equal(got, want) || !l.Whole() {
				t.Errorf("%q says %q, signed it says %q, whole %v", b, want, got, l.Whole())
			}
		}
	})
}
