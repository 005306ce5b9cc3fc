package sessionfile

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"leasehold/internal/signed"
	"leasehold/internal/test/testkey"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// written is a file as launchers have written it since the first release. A newer
// launcher has to be able to resume its session.
const written = `{"session_id":"ses_1","capability_sha256":"ab","lease_token":42,"manifest":{"task_id":"t","worker_id":"w","profile_id":"p"},` +
	`"acquired_at":"2026-11-20T10:00:00Z","seen_at":"2026-11-20T10:05:00Z","proxy":{"proxy_id":"p0","server":"http://one:1","sha256":"cd"},` +
	`"reason":"connection_lost","evidence":{"EvidenceID":"ev_1","SHA256":"ef"},"unseen":true,"in_order":true,"outcome":"succeeded","rung":"cdp","journal_sha256":"ab","ended":"released",` +
	`"one_shot":true,"by_hand":{"Holder":"ann"},"resume":{"from":"a","checkpoint":"b"},"dedicated":"127.0.0.1:4000"}`

func TestFilesOfOlderLaunchersAreRead(t *testing.T) {
	var f File
	if err := json.Unmarshal([]byte(written), &f); err != nil {
		t.Fatal(err)
	}
	v := reflect.ValueOf(f)
	for i := range v.NumField() {
		// These came later: without the first two nobody knows who opened the session.
		later := []string{"Principal", "OpenerUID", "CookiesLost", "NotStored", "UnfinishedDownloads", "Person", "Released", "Begun"}
		if name := v.Type().Field(i).Name; v.Field(i).IsZero() != slices.Contains(later, name) {
			t.Errorf("%s is not read, or read from nothing", name)
		}
	}
	if err := json.Unmarshal([]byte(`{"principal":"uid:1000","opener_uid":1000}`), &f); err != nil || f.Principal != "uid:1000" || f.OpenerUID == nil || *f.OpenerUID != 1000 {
		t.Errorf("who opened it: %q, %v, %v", f.Principal, f.OpenerUID, err)
	}
	if f.CloseMethod != "cdp" || f.Token != 42 || f.Proxy.Sum != "cd" || f.Evidence.EvidenceID != "ev_1" || f.ByHand.Holder != "ann" {
		t.Errorf("%+v", f)
	}
}

func TestFilesAreKept(t *testing.T) {
	d := NewDir(t.TempDir(), testkey.Key)
	if all, err := d.Load(); err != nil || len(all) != 0 {
		t.Fatalf("a new folder: %v, %v", all, err)
	}
	now := time.Now().UTC().Truncate(time.Second)
	older := File{SessionID: "ses_a", Token: 1, AcquiredAt: now.Add(-time.Hour), Manifest: api.Manifest{ProfileID: "p"}, Evidence: lease.Sealed{EvidenceID: "ev"}}
	newer := File{SessionID: "ses_b", Token: 2, AcquiredAt: now}
	if err := d.Begin(newer); err != nil {
		t.Fatal(err)
	}
	if err := d.Sync("ses_b"); err != nil {
		t.Fatal(err)
	}
	if err := d.Save(older); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"ses_c.json": "{", "ses_d.json": `{"session_id":"ses_a"}`, "other.txt": ""} {
		if err := os.WriteFile(filepath.Join(d.path, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all, err := d.Load()
	if err != nil || len(all) != 2 || all[0].SessionID != "ses_a" || all[1].SessionID != "ses_b" {
		t.Fatalf("%v, %v", all, err)
	}
	if got, err := d.Read("ses_a"); err != nil || !reflect.DeepEqual(got, older) {
		t.Errorf("%+v, %v, want %+v", got, err, older)
	}
	for _, id := range []string{"ses_c", "ses_d", "ses_x"} {
		if _, err := d.Read(id); err == nil || !strings.Contains(err.Error(), id) {
			t.Errorf("%s: %v", id, err)
		}
	}
}

func TestEverythingOfASessionIsRemoved(t *testing.T) {
	d := NewDir(t.TempDir(), testkey.Key)
	if _, err := d.Load(); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"ses_a", "ses_b"} {
		if err := d.Save(File{SessionID: id}); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{d.Journal(id), d.Output(id), d.PipeLog(id), d.Digests(id)} {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		dumps, err := d.MakeDumps(id)
		if err == nil {
			err = os.WriteFile(filepath.Join(dumps, "one.dmp"), nil, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // files that are missing are no error
		if err := d.Remove("ses_a"); err != nil {
			t.Fatal(err)
		}
	}
	left, err := os.ReadDir(d.path)
	if err != nil || len(left) != 6 {
		t.Fatalf("%v, %v", left, err)
	}
	for _, e := range left {
		if !strings.HasPrefix(e.Name(), "ses_b.") {
			t.Errorf("%s stays", e.Name())
		}
	}
}

// FuzzSessionFile checks that no session file is believed that nobody signed, or that was
// signed for another session.
func FuzzSessionFile(f *testing.F) {
	f.Add([]byte(`{"session_id":"ses_a","capability_sha256":"00","lease_token":1}`))
	f.Add(testkey.Key.Sign(signed.Session, "ses_b", []byte(`{"session_id":"ses_a"}`)))
	f.Add(testkey.Key.Sign(signed.Floor, "ses_a", []byte(`{"session_id":"ses_a"}`)))
	f.Add(testkey.Key.Sign(signed.Session, "ses_a", []byte(`{"session_id":"ses_b"}`)))
	d := NewDir(f.TempDir(), testkey.Key)
	f.Fuzz(func(t *testing.T, b []byte) {
		if file, err := d.parse("ses_a", b); !errors.Is(err, signed.ErrNotAuthentic) {
			t.Errorf("%q: %+v, %v", b, file, err)
		}
	})
}
