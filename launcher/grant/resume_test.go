package grant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/evidence/crypt"
	"leasehold/internal/test/testkey"
	"leasehold/launcher/api"
	"leasehold/launcher/host"
	"leasehold/launcher/sessionfile"
	"leasehold/launcher/witness"
	"leasehold/lease"
)

// Where the lost session's journal is only in the evidence, its checkpoint's data is read
// from there, also where that is encrypted.
func TestTheCheckpointsDataIsInTheEvidence(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	recipient, err := crypt.WriteIdentity(key)
	if err != nil {
		t.Fatal(err)
	}
	to, err := crypt.ParseRecipients([]string{recipient})
	if err != nil {
		t.Fatal(err)
	}
	with, err := crypt.ReadIdentities([]string{key})
	if err != nil {
		t.Fatal(err)
	}
	for name, keys := range map[string]evidence.Keys{"in clear": {}, "encrypted": {To: to, With: with}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			spool, err := evidence.OpenEncryptedSpool(filepath.Join(dir, "spool"), keys)
			if err != nil {
				t.Fatal(err)
			}
			bundles, err := evidence.OpenDirStore(filepath.Join(dir, "evidence"))
			if err != nil {
				t.Fatal(err)
			}
			archive := evidence.NewArchive(spool, bundles, zerolog.Nop())
			g := &Service{host: &host.Host{Archive: archive}, o: Options{Files: sessionfile.NewDir(dir, testkey.Key)}}
			lost := inEvidence(t, archive, lostJournal())
			safe, err := g.safeCheckpoint(t.Context(), lost)
			if err != nil || string(safe.Data) != `{"row":7}` {
				t.Errorf("%+v, %v", safe, err)
			}
		})
	}
}

// lostJournal is the journal of a lost session that named a safe checkpoint.
func lostJournal() []checkpoint.Entry {
	now := time.Now().UTC()
	return []checkpoint.Entry{
		{Seq: 1, At: now, Kind: checkpoint.KindStart},
		{Seq: 2, At: now, Kind: checkpoint.KindCheckpoint, Name: "listed", Safe: true, Data: json.RawMessage(`{"row":7}`)},
	}
}

// inEvidence seals a bundle with the journal of the lost session, and returns the record that names it.
func inEvidence(t *testing.T, archive *evidence.Archive, journal []checkpoint.Entry) lease.Record {
	t.Helper()
	b, err := archive.New(evidence.Manifest{ProfileID: "p", SessionID: "ses_lost", At: time.Now().UTC()})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Add(witness.JournalPart, "journal", "application/x-ndjson", checkpoint.Encode(journal)); err != nil {
		t.Fatal(err)
	}
	m, _, err := archive.Save(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	return lease.Record{ProfileID: "p", SessionID: "ses_lost", TaskID: "task-1", EvidenceID: m.EvidenceID, LastSafeCheckpoint: "listed"}
}

// leave writes what is on disk of the lost session: its journal, and its file with the sum of the journal that it had.
func leave(t *testing.T, files sessionfile.Dir, had, has []checkpoint.Entry) {
	t.Helper()
	path := files.Journal("ses_lost")
	if err := errors.Join(
		os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, checkpoint.Encode(has), 0o600),
		files.Save(sessionfile.File{SessionID: "ses_lost", JournalSum: checkpoint.Sum(had)}),
	); err != nil {
		t.Fatal(err)
	}
}

// A journal on disk that is not the one with which the session ended, because the disk lost or changed a part of
// it, gives the task nothing: the checkpoint's data is read from the evidence.
func TestAChangedJournalGivesNoData(t *testing.T) {
	whole := lostJournal()
	changed := lostJournal()
	changed[1].Data = json.RawMessage(`{"row":1}`)
	for name, c := range map[string]struct {
		has []checkpoint.Entry
		is  string // the data of the checkpoint in the evidence
	}{
		"as it was": {whole, `{"row":8}`},
		"truncated": {whole[:1], `{"row":7}`},
		"empty":     {nil, `{"row":7}`},
		"changed":   {changed, `{"row":7}`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			spool, err := evidence.OpenSpool(filepath.Join(dir, "spool"))
			if err != nil {
				t.Fatal(err)
			}
			bundles, err := evidence.OpenDirStore(filepath.Join(dir, "evidence"))
			if err != nil {
				t.Fatal(err)
			}
			archive, files := evidence.NewArchive(spool, bundles, zerolog.Nop()), sessionfile.NewDir(dir, testkey.Key)
			leave(t, files, whole, c.has)
			sealed := lostJournal()
			sealed[1].Data = json.RawMessage(c.is) // where the disk is believed it differs, to tell the two apart
			lost := inEvidence(t, archive, sealed)
			g := &Service{host: &host.Host{Archive: archive, Log: zerolog.Nop()}, o: Options{Files: files}}
			safe, err := g.resumed(t.Context(), lost)
			if err != nil || string(safe.Data) != `{"row":7}` {
				t.Errorf("it goes on with %s, %v", safe.Data, err)
			}
		})
	}
}

// unreachable is an evidence store that answers everything with an error.
type unreachable struct {
	evidence.Store
	err error
}

func (u unreachable) Manifest(context.Context, string) ([]byte, error) { return nil, u.err }

// A task whose checkpoint's data only the evidence store has is not resumed while that store cannot be
// reached, or the sidecar cannot open what it has, since the task would repeat what it did. Where the evidence is
// gone for good, it goes on.
func TestNoTaskIsResumedWithoutItsData(t *testing.T) {
	lost := lease.Record{ProfileID: "p", SessionID: "ses_lost", TaskID: "task-1", EvidenceID: "ev_1", LastSafeCheckpoint: "listed"}
	entries := lostJournal()
	for _, c := range []struct {
		name     string
		err      error
		onDisk   bool
		want     string // the data
		wantCode string
	}{
		{"out of reach", errors.New("connection refused"), false, "", api.CodeEvidenceStore},
		{"too slow", context.DeadlineExceeded, false, "", api.CodeEvidenceStore},
		{"encrypted for others", fmt.Errorf("evidence ev_1: %w", crypt.ErrNoKey), false, "", api.CodeEvidenceStore},
		{"removed", evidence.ErrNotFound, false, "", ""},
		{"damaged", evidence.ErrDamaged, false, "", ""},
		{"on this host's disk", errors.New("connection refused"), true, `{"row":7}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			spool, err := evidence.OpenSpool(filepath.Join(dir, "spool"))
			if err != nil {
				t.Fatal(err)
			}
			files := sessionfile.NewDir(dir, testkey.Key)
			if c.onDisk {
				leave(t, files, entries, entries)
			}
			archive := evidence.NewArchive(spool, unreachable{err: c.err}, zerolog.Nop())
			g := &Service{host: &host.Host{Archive: archive, Log: zerolog.Nop()}, o: Options{Files: files}}
			safe, err := g.resumed(t.Context(), lost)
			var p *api.Problem
			if errors.As(err, &p); (p != nil || c.wantCode != "") && (p == nil || p.Code != c.wantCode || p.RetryAfter == 0) {
				t.Errorf("refused with %v, want %q", err, c.wantCode)
			}
			if errors.Is(c.err, crypt.ErrNoKey) && (p == nil || !strings.Contains(p.Detail, "--evidence-identity")) {
				t.Errorf("the refusal does not say how the data can be read: %v", err)
			}
			if string(safe.Data) != c.want || err == nil && safe.Name != "listed" {
				t.Errorf("it goes on from %q with %s, want the data %s", safe.Name, safe.Data, c.want)
			}
		})
	}
}
