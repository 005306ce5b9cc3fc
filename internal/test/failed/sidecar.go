package failed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	// askTimeout bounds all questions to one sidecar: it may be the one that hangs.
	askTimeout = 20 * time.Second
	// bundles is how many of a profile's bundles are kept, the newest first.
	bundles = 3
	// lastLines is how many lines of a log are shown with the test's own words.
	lastLines = 40
)

// Sidecar is a sidecar of a test.
type Sidecar struct {
	Name string // of the directory for it, where a test has several; may be empty
	URL  string
	// Client asks it: a client that may read everything.
	Client *http.Client
	DataDir,
	Log string // the path of its log
}

// Answers keeps what a living sidecar of a failed test says of its profiles: records, events and
// evidence. Call it before the sidecar is stopped.
func (s Sidecar) Answers(t testing.TB) {
	t.Helper()
	if !t.Failed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	to := filepath.Join(Dir(t), s.Name)
	if err := s.answers(ctx, to); err != nil {
		t.Logf("what %s says is not all kept: %v", s.URL, err)
	}
}

// Files keeps the log, the journals and the other files of a failed test's sidecar, without what
// Chrome and NATS have, and says where all of it is. Call it when the sidecar is stopped.
func (s Sidecar) Files(t testing.TB) {
	t.Helper()
	if !t.Failed() {
		return
	}
	to := filepath.Join(Dir(t), s.Name)
	err := Copy(filepath.Join(to, "data"), s.DataDir, func(path string) bool {
		parent, name := filepath.Split(path)
		return path == "nats" || parent == "profiles/" && !strings.HasPrefix(name, ".")
	})
	log, readErr := os.ReadFile(s.Log)
	err = errors.Join(err, readErr, os.MkdirAll(to, 0o755), os.WriteFile(filepath.Join(to, "sidecar.log"), log, 0o600))
	if err != nil {
		t.Logf("the files of %s are not all kept: %v", s.URL, err)
	}
	t.Logf("its log, journals, events and evidence are in %s; the end of the log:\n%s", to, End(string(log), lastLines))
}

func (s Sidecar) answers(ctx context.Context, to string) error {
	var profiles struct {
		Items []struct {
			ID string `json:"profile_id"`
		}
	}
	err := s.keep(ctx, "/v1/profiles", filepath.Join(to, "profiles.json"), &profiles)
	err = errors.Join(err, s.keep(ctx, "/v1/sessions", filepath.Join(to, "sessions.json"), nil))
	for _, p := range profiles.Items {
		at := "/v1/profiles/" + p.ID
		var found struct {
			Items []struct {
				ID    string `json:"evidence_id"`
				Parts []struct{ Name, Missing string }
			}
		}
		err = errors.Join(err, s.keep(ctx, at+"/history", filepath.Join(to, p.ID, "events.json"), nil),
			s.keep(ctx, at+"/evidence", filepath.Join(to, p.ID, "evidence.json"), &found))
		for _, bundle := range found.Items[:min(bundles, len(found.Items))] {
			for _, part := range bundle.Parts {
				if part.Missing != "" {
					continue
				}
				err = errors.Join(err, s.keep(ctx, "/v1/evidence/"+bundle.ID+"/"+part.Name, filepath.Join(to, p.ID, bundle.ID, part.Name), nil))
			}
		}
	}
	return err
}

// keep writes an answer to a file, and decodes it into result unless that is nil.
func (s Sidecar) keep(ctx context.Context, path, file string, result any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, nil)
	if err != nil {
		return err
	}
	resp, err := s.Client.Do(req)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s %s", path, resp.Status, body)
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, body, 0o600)); err != nil {
		return err
	}
	if result != nil {
		return json.Unmarshal(body, result)
	}
	return nil
}
