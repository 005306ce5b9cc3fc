package evidence_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"pgregory.net/rapid"

	"leasehold/evidence"
	"leasehold/evidence/crypt"
	"leasehold/internal/test/storetest"
)

const private = "only-for-the-recipient"

// telling is a manifest with a private in each field that the encrypted one may not show.
func telling(evidenceID string, previous evidence.Link) evidence.Manifest {
	return evidence.Manifest{
		EvidenceID: evidenceID, ProfileID: "p", SessionID: "s", AccountID: private, LauncherID: "l", At: time.Unix(1, 0).UTC(),
		OldWorkerID: private, OldTaskID: private, LeaseToken: 7, LastKnownStep: private, LastKnownURL: "https://shop.example/" + private,
		ProxyID: private, ProfileDir: private, RecoveryReason: "heartbeat_timeout", Outcome: private, Checkpoint: private,
		PreviousEvidenceID: previous.EvidenceID, PreviousManifestSHA256: previous.SHA256,
	}
}

// tell fills a bundle with secrets.
func tell(t testing.TB, b *evidence.Bundle) {
	t.Helper()
	if err := b.Add("screenshot-1.jpg", evidence.KindScreenshot, "image/jpeg", []byte(private)); err != nil {
		t.Fatal(err)
	}
	b.AddMissing("dom-1.html", evidence.KindDOM, "no answer of "+private)
	b.SetPages([]evidence.PageResult{{URL: private, CommittedURL: private, Title: private, Screenshot: "screenshot-1.jpg", Dialog: private, Primary: true}})
	b.SetPictures([]evidence.Picture{{EvidenceID: "pic_1", ManifestSHA256: "0", URL: private, Step: private, Checkpoint: private, Missing: private}})
	b.SetStateChanged(nil, []byte(private))
	b.SetFound([]evidence.Found{{Name: "code_asked_for", Answer: "yes", How: private, Picture: "fact-1.jpg"}})
}

// noSecret fails where any file below a directory contains the private.
func noSecret(t *testing.T, dir string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		content, err := os.ReadFile(path)
		if bytes.Contains(content, []byte(private)) {
			t.Errorf("%s has the private: %s", path, content)
		}
		return err
	})
	if err != nil || files == 0 {
		t.Fatalf("%d files, %v", files, err)
	}
}

// Nothing of an encrypted bundle can be read at rest, from its first part on; a recipient
// reads all of it.
func TestEncryptedAtRest(t *testing.T) {
	keys, dir := storetest.NewKeys(t), t.TempDir()
	spoolDir, storeDir := filepath.Join(dir, "spool"), filepath.Join(dir, "store")
	writer, err := evidence.OpenEncryptedSpool(spoolDir, evidence.Keys{To: keys.To})
	if err != nil {
		t.Fatal(err)
	}
	store, err := evidence.OpenDirStore(storeDir)
	if err != nil {
		t.Fatal(err)
	}
	b, err := writer.New(telling("ev_1", evidence.Link{}))
	if err != nil {
		t.Fatal(err)
	}
	tell(t, b)
	noSecret(t, spoolDir) // not sealed yet
	clear, sum, err := b.Seal()
	if err != nil {
		t.Fatal(err)
	}
	noSecret(t, spoolDir)

	a := evidence.NewArchive(writer, store, zerolog.Nop())
	if err := a.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	picture, err := a.PutPicture(t.Context(), telling("", evidence.Link{}), []byte(private), "")
	if err != nil || picture.URL != clear.LastKnownURL || picture.Step != private {
		t.Fatalf("the picture %+v, %v", picture, err)
	}
	noSecret(t, storeDir)

	if _, _, err := a.Content(t.Context(), "ev_1", "screenshot-1.jpg"); !errors.Is(err, crypt.ErrNoKey) || !strings.Contains(err.Error(), keys.To.Names()[0]) {
		t.Errorf("without the identity: %v", err)
	}
	stored, mediaType, err := a.Stored(t.Context(), "ev_1", "screenshot-1.jpg")
	if plain, bad := keys.With.Decrypt(stored); err != nil || bad != nil || string(plain) != private || mediaType != evidence.StoredMediaType {
		t.Errorf("as it is stored: %q, %s, %v, %v", plain, mediaType, err, bad)
	}

	reading, err := evidence.OpenEncryptedSpool(spoolDir, keys)
	if err != nil {
		t.Fatal(err)
	}
	reader := evidence.NewArchive(reading, store, zerolog.Nop())
	for _, id := range []string{"ev_1", picture.EvidenceID} {
		content, mediaType, err := reader.Content(t.Context(), id, "screenshot-1.jpg")
		if err != nil || string(content) != private || mediaType != "image/jpeg" {
			t.Errorf("%s with the identity: %q, %s, %v", id, content, mediaType, err)
		}
	}
	list, err := store.List(t.Context(), "p")
	if err != nil || len(list) != 2 {
		t.Fatalf("%d bundles, %v", len(list), err)
	}
	opened, ok := reader.Opened(list[0])
	want, _ := json.Marshal(clear)
	if got, _ := json.Marshal(opened); !ok || string(got) != string(want) {
		t.Errorf("opened %v\n%s\nsealed\n%s", ok, got, want)
	}
	if _, ok := a.Opened(list[0]); ok {
		t.Error("opened without the identity")
	}
	if want := []evidence.Found{{Name: "code_asked_for", Answer: "yes", How: "", Picture: "fact-1.jpg"}}; !slices.Equal(list[0].Found, want) {
		t.Errorf("what the pages showed: %+v, want %+v", list[0].Found, want)
	}
	if list[0].LastScreenshot != "screenshot-1.jpg" || list[0].StateChanged.Answer != evidence.ChangedUnknown {
		t.Errorf("what the recovery needs is not in clear: %+v", list[0])
	}
	r, err := evidence.Verify(t.Context(), store, "p", evidence.Link{EvidenceID: "ev_1", SHA256: sum})
	if err != nil || r.Encrypted != 2 || len(r.Locked) != 0 {
		t.Errorf("without a key: %+v, %v", r, err)
	}
	other := storetest.NewKeys(t)
	r, err = evidence.VerifyWith(t.Context(), store, "p", evidence.Link{EvidenceID: "ev_1", SHA256: sum}, other.With)
	if err != nil || len(r.Locked) != 2 {
		t.Errorf("with another key: %+v, %v", r, err)
	}
}

// A chain in which some bundles are in clear, and others encrypted to earlier and later
// keys, is one chain.
func TestMixedChain(t *testing.T) {
	early, late := storetest.NewKeys(t), storetest.NewKeys(t)
	var head evidence.Link
	store, err := evidence.OpenDirStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for i, keys := range []evidence.Keys{{}, early, late} {
		var b *evidence.Sealed
		b, head = storetest.Seal(t, storetest.EncryptedSpool(t, keys), "p", []string{"ev_1", "ev_2", "ev_3"}[i], uint64(i+1), head)
		if err := store.Put(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	r, err := evidence.VerifyWith(t.Context(), store, "p", head, late.With)
	if err != nil || !r.OK() || r.Bundles != 3 || r.Encrypted != 2 || len(r.Locked) != 1 || r.Locked[0] != "ev_2" {
		t.Errorf("%+v, %v", r, err)
	}
}

// What is encrypted in one bundle cannot be put into another.
func TestHiddenManifestOfAnother(t *testing.T) {
	keys := storetest.NewKeys(t)
	spool := storetest.EncryptedSpool(t, keys)
	one, link := storetest.Seal(t, spool, "p", "ev_1", 1, evidence.Link{})
	two, _ := storetest.Seal(t, spool, "p", "ev_2", 2, link)
	forged := one.Manifest
	hidden := *two.Manifest.Encryption
	forged.Encryption = &hidden
	if _, err := forged.Open(keys.With); !errors.Is(err, evidence.ErrDamaged) {
		t.Errorf("the manifest of another bundle: %v", err)
	}
	content, err := two.Part("journal.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := one.Manifest.OpenPart(keys.With, "journal.jsonl", content); !errors.Is(err, evidence.ErrDamaged) {
		t.Errorf("the part of another bundle: %v", err)
	}
	if _, err := one.Manifest.OpenPart(keys.With, "dom-1.html", nil); !errors.Is(err, evidence.ErrNotFound) {
		t.Errorf("a missing part: %v", err)
	}
}

// Whatever a bundle says, it says the same once it is opened.
func TestOpenedIsTheSame(t *testing.T) {
	keys := storetest.NewKeys(t)
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.String()
		m := telling("ev_1", evidence.Link{})
		m.AccountID, m.Outcome, m.LastKnownStep = text.Draw(rt, "account"), text.Draw(rt, "outcome"), text.Draw(rt, "step")
		spool := storetest.EncryptedSpool(t, keys)
		b, err := spool.New(m)
		if err != nil {
			rt.Fatal(err)
		}
		content := rapid.SliceOf(rapid.Byte()).Draw(rt, "content")
		if err := b.Add("part", "kind", "text/plain", content); err != nil {
			rt.Fatal(err)
		}
		if rapid.Bool().Draw(rt, "missing") {
			b.AddMissing("missing", "kind", text.Draw(rt, "why"))
		}
		clear, _, err := b.Seal()
		if err != nil {
			rt.Fatal(err)
		}
		sealed, err := spool.Open("ev_1")
		if err != nil {
			rt.Fatal(err)
		}
		opened, err := sealed.Manifest.Open(keys.With)
		// JSON keeps no invalid UTF-8, so the comparison is of what JSON keeps.
		var want evidence.Manifest
		raw, _ := json.Marshal(clear)
		_ = json.Unmarshal(raw, &want)
		if err != nil || !reflect.DeepEqual(opened, want) {
			rt.Fatalf("%v\n%+v\n%+v", err, opened, want)
		}
		stored, err := sealed.Part("part")
		if err != nil {
			rt.Fatal(err)
		}
		if got, err := sealed.Manifest.OpenPart(keys.With, "part", stored); err != nil || !bytes.Equal(got, content) {
			rt.Fatalf("%q, %v", got, err)
		}
	})
}

// Any manifest may be stored: opening one never panics, and never shows what is not
// inside.
func FuzzOpen(f *testing.F) {
	keys := storetest.NewKeys(f)
	sealed, _ := storetest.Seal(f, storetest.EncryptedSpool(f, keys), "p", "ev_1", 1, evidence.Link{})
	f.Add(sealed.Raw)
	f.Add([]byte(`{"evidence_id":"ev_1","encryption":{"manifest":"AAAA"}}`))
	f.Add([]byte(`{"evidence_id":"ev_1","encryption":{}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := evidence.Decode("ev_1", raw)
		if err != nil {
			return
		}
		opened, err := m.Open(keys.With)
		if err == nil && (opened.EvidenceID != "ev_1" || opened.Encrypted() || len(opened.Parts) != len(m.Parts)) {
			t.Fatalf("opened %+v from %s", opened, raw)
		}
		for _, p := range m.Parts {
			_, _ = m.OpenPart(keys.With, p.Name, raw)
		}
	})
}
