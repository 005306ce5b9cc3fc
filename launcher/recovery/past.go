package recovery

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"leasehold/internal/durable"
	"leasehold/internal/signed"
	"leasehold/launcher/recovery/findings"
	"leasehold/launcher/recovery/table"
)

// What is kept of the last recoveries of this host, so that they can be decided again, is in the folder
// incidents of the data directory: a file for each, named by its evidence. Files that are as old as evidence
// that is removed are removed, too.

// maxPasts is how many are kept.
const maxPasts = 300

func (r *Recoverer) pastDir() string { return filepath.Join(r.o.DataDir, "incidents") }

// keepPast keeps a recovery that was decided, and removes those that are kept no longer.
func (s *steps) keepPast(found table.Inspection, d table.Decision) error {
	evidence := s.File.Evidence.EvidenceID
	if evidence == "" { // nobody could name it
		return nil
	}
	p := findings.Past{EvidenceID: evidence, ProfileID: s.Profile, At: time.Now().UTC(), Outcome: d.Outcome, Version: table.Version, SessionCheck: s.judged.Record.SessionCheck != nil}
	b, err := json.Marshal(p.Keep(s.judged.Journal, found, s.judged.Task(), s.asked))
	if err == nil {
		err = os.MkdirAll(s.r.pastDir(), 0o700)
	}
	if err == nil {
		err = durable.Replace(filepath.Join(s.r.pastDir(), evidence+".json"), s.r.o.Key.Sign(signed.Incident, evidence, b))
	}
	if err != nil {
		return fmt.Errorf("incident %s: %w", evidence, err)
	}
	all, err := s.r.pastFiles()
	for i, f := range all {
		if i >= maxPasts || s.r.o.KeepPasts > 0 && time.Since(f.ModTime()) > s.r.o.KeepPasts {
			err = errors.Join(err, os.Remove(filepath.Join(s.r.pastDir(), f.Name())))
		}
	}
	return err
}

// pastFiles are the files, the newest first.
func (r *Recoverer) pastFiles() (all []fs.FileInfo, _ error) {
	entries, err := os.ReadDir(r.pastDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("incidents: %w", err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && strings.HasSuffix(e.Name(), ".json") { // otherwise it was removed just now, or is being written
			all = append(all, info)
		}
	}
	slices.SortFunc(all, func(a, b fs.FileInfo) int {
		return cmp.Or(b.ModTime().Compare(a.ModTime()), cmp.Compare(a.Name(), b.Name()))
	})
	return all, nil
}

// Pasts are the recoveries that are kept, the newest first, until ctx ends. What somebody else wrote is left
// out.
func (r *Recoverer) Pasts(ctx context.Context) (iter.Seq[findings.Past], error) {
	all, err := r.pastFiles()
	return func(yield func(findings.Past) bool) {
		for _, f := range all {
			if ctx.Err() != nil {
				return
			}
			evidence := strings.TrimSuffix(f.Name(), ".json")
			b, err := os.ReadFile(filepath.Join(r.pastDir(), f.Name()))
			var p findings.Past
			if err == nil {
				b, err = r.o.Key.Open(signed.Incident, evidence, b)
			}
			if err == nil {
				err = json.Unmarshal(b, &p)
			}
			switch {
			case errors.Is(err, fs.ErrNotExist): // it was removed just now
			case err != nil:
				r.o.Log.Warn().Err(err).Str("evidence", evidence).Msg("an incident is not decided again: what is kept of it cannot be read")
			case !yield(p):
				return
			}
		}
	}, err
}
