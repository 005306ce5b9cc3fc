package launcher

import (
	"os"
	"path/filepath"
	"testing"
)

// A launcher that starts removes the copy of an account that was being imported when the one before was killed.
func TestALauncherRemovesWhatAnImportLeft(t *testing.T) {
	left := ""
	startReading(t, 1, func(o *Options) {
		left = filepath.Join(o.Root.Dir(), ".leasehold", ".import-p")
		mustIn(t)(os.MkdirAll(filepath.Join(left, "profile", "Default"), 0o700))
	})
	if _, err := os.Lstat(left); !os.IsNotExist(err) {
		t.Errorf("it is left: %v", err)
	}
}
