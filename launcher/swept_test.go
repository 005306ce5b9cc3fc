package launcher

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A launcher that starts removes the copy of an account that was being imported when the one before was killed.
func TestALauncherRemovesWhatAnImportLeft(t *testing.T) {
	left := ""
	startReading(t, 1, func(o *Options) {
		left = filepath.Join(o.Root.Dir(), ".leasehold", ".import-p")
		mustIn(t)(os.MkdirAll(filepath.Join(left, "profile", "Default"), 0o700))
	})
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		_, err := os.Lstat(left)
		if os.IsNotExist(err) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("it is left: %v", err)
		}
	}
}
