package browser

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// asked counts how often the binary was asked for its version.
type asked struct {
	Kernel
	n    int
	says string
}

func (a *asked) Version(context.Context, string) (string, error) {
	a.n++
	return a.says, nil
}

// TestTheBinaryIsAskedForItsVersionOnce, at the launcher's start, and again when it is another one.
func TestTheBinaryIsAskedForItsVersionOnce(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("chrome", "old")
	write("Last Version", "156.0.8078.79")
	binary := &asked{says: "Chromium 156.0.8078.79"}
	d := NewDriver(t.Context(), &sync.WaitGroup{}, Options{Binary: filepath.Join(dir, "chrome"), Processes: binary, Log: zerolog.Nop(), Metrics: prometheus.NewRegistry()})
	if said, err := d.Version(t.Context()); said != binary.says || err != nil {
		t.Errorf("it said %q, %v", said, err)
	}
	if err := d.MayOpen(t.Context(), dir); err != nil || binary.n != 1 {
		t.Errorf("a profile of the same version: %v; asked %d times, want once", err, binary.n)
	}
	write("chrome", "another")
	binary.says = "Chromium 155.0.8000.1"
	var older *OlderError
	if err := d.MayOpen(t.Context(), dir); !errors.As(err, &older) || binary.n != 2 {
		t.Errorf("after the binary was replaced by an older one: %v; asked %d times, want twice", err, binary.n)
	}
}
