package failed

import (
	"os"
	"path/filepath"
	"testing"
)

// TestCopyLeavesOutWhatIsUnwanted: files are copied with their directories, unwanted ones are not.
func TestCopyLeavesOutWhatIsUnwanted(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	for path, content := range map[string]string{"stderr.log": "said", "sessions/a.journal": "entry", "profiles/p/Cookies": "secret"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(from, path)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(from, path), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := Copy(to, from, func(path string) bool { return path == "profiles" }); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"stderr.log": "said", "sessions/a.journal": "entry", "profiles/p/Cookies": ""} {
		if got, _ := os.ReadFile(filepath.Join(to, path)); string(got) != want {
			t.Errorf("%s has %q, want %q", path, got, want)
		}
	}
}

// TestEndSaysWhatItLeavesOut: of a long text only the last lines are shown.
func TestEndSaysWhatItLeavesOut(t *testing.T) {
	if got, want := End("a\nb\nc\n", 2), "(1 lines before)\nb\nc"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := End("a\nb\n", 2), "a\nb"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
