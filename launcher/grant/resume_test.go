package grant

import (
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/evidence/crypt"
	"leasehold/internal/test/testkey"
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
			now := time.Now().UTC()
			b, err := archive.New(evidence.Manifest{ProfileID: "p", SessionID: "ses_lost", At: now})
			if err != nil {
				t.Fatal(err)
			}
			journal := checkpoint.Encode([]checkpoint.Entry{
				{Seq: 1, At: now, Kind: checkpoint.KindStart},
				{Seq: 2, At: now, Kind: checkpoint.KindCheckpoint, Name: "listed", Safe: true, Data: json.RawMessage(`{"row":7}`)},
			})
			if err := b.Add(witness.JournalPart, "journal", "application/x-ndjson", journal); err != nil {
				t.Fatal(err)
			}
			m, _, err := archive.Save(t.Context(), b)
			if err != nil {
				t.Fatal(err)
			}
			lost := lease.Record{ProfileID: "p", SessionID: "ses_lost", EvidenceID: m.EvidenceID, LastSafeCheckpoint: "listed"}
			safe, err := g.safeCheckpoint(t.Context(), lost)
			if err != nil || string(safe.Data) != `{"row":7}` {
				t.Errorf("%+v, %v", safe, err)
			}
		})
	}
}
