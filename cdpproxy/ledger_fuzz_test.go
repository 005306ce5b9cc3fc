package cdpproxy

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// FuzzLedger checks that any file is read without a panic, and says the same after it was
// compacted.
func FuzzLedger(f *testing.F) {
	f.Add([]byte("open A 7\nattach A B\npause B 1 plain\npause B 2 auth\nsettle B 1\nopen C 0\nclose C\n"))
	f.Add([]byte("open A 7\nattach A A\nopen A 8\ndetach A\nclose A"))
	f.Add([]byte("open A 7\nopen B 8\nattach A B\nattach B A\npause A r plain\n"))
	f.Add([]byte("open A -1\nattach X Y\npause X\n\n \nopen A 7 8\nclose"))
	path := filepath.Join(f.TempDir(), "ledger")
	f.Fuzz(func(t *testing.T, b []byte) {
		want := describe(replay(b))
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := OpenLedger(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		short, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := describe(replay(short)); !slices.Equal(got, want) {
			t.Errorf("%q says %q, written anew %q says %q", b, want, short, got)
		}
	})
}
