package sides

import (
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"leasehold/internal/test/built"
	"leasehold/internal/test/failed"
)

// ForTest starts a sidecar of this tree, which ends with the test. If the test fails, what the
// sidecar leaves is kept (internal/test/failed).
func ForTest(t testing.TB, args ...string) *Sidecar {
	t.Helper()
	binary, err := built.Leasehold()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s, err := StartSidecar(binary, dir, nil, args...)
	if err != nil {
		t.Fatal(err)
	}
	left := failed.Sidecar{URL: s.URL, Client: http.DefaultClient, DataDir: filepath.Join(dir, "data"), Log: s.log}
	t.Cleanup(func() {
		left.Answers(t)
		if err := s.Stop(time.Minute); err != nil {
			t.Errorf("the sidecar ended: %v", err)
		}
		left.Files(t)
	})
	return s
}
