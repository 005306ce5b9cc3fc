package export_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"image"
	"image/jpeg"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"leasehold/checkpoint"
	"leasehold/evidence"
	"leasehold/evidence/crypt"
	"leasehold/evidence/export"
	"leasehold/evidence/recorder"
	"leasehold/launcher/api"
	"leasehold/lease"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var began = time.Date(2026, 11, 20, 9, 32, 0, 0, time.UTC)

func after(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }

// hostile is what a page may have made its title and a task its texts.
const hostile = `"><script>alert(1)</script>` + "\u202e\x1b[2J</style>{{.}}"

// journal is that of the session: a checkpoint, then a POST that was answered and one that
// was not.
func journal() []byte {
	return checkpoint.Encode([]checkpoint.Entry{
		{Seq: 1, At: after(0), Token: 42, Kind: checkpoint.KindStart},
		{Seq: 2, At: after(1), Token: 42, Kind: checkpoint.KindURL, URL: "https://shop.example/cart?next=REDACTED", Committed: true, Target: "T"},
		{Seq: 3, At: after(2), Token: 42, Kind: checkpoint.KindRequest, Method: "POST", URL: "https://shop.example/search", Request: "r1", Type: "XHR"},
		{Seq: 4, At: after(3), Token: 42, Kind: checkpoint.KindAnswer, URL: "https://shop.example/search", Request: "r1", Status: 200},
		{Seq: 5, At: after(4), Token: 42, Kind: checkpoint.KindCheckpoint, Name: "cart_loaded", Safe: true},
		{Seq: 6, At: after(5), Token: 42, Kind: checkpoint.KindStep, Name: hostile, Sensitive: true},
		{Seq: 11, At: after(6), Token: 42, Kind: checkpoint.KindTyped, Name: string(checkpoint.FieldPassword), URL: "https://shop.example/cart"},
		{Seq: 7, At: after(6), Token: 42, Kind: checkpoint.KindRequest, Method: "POST", URL: "https://shop.example/pay", Request: "r2", Type: "Document"},
		{Seq: 8, At: after(7), Token: 42, Kind: checkpoint.KindRequest, Method: checkpoint.Websocket, URL: "wss://shop.example/live"},
		{Seq: 9, At: after(8), Token: 42, Kind: checkpoint.KindWithheld, Method: "POST", URL: "https://shop.example/beacon"},
		{Seq: 10, At: after(8), Token: 42, Kind: checkpoint.KindDialog, Name: "confirm", Text: hostile},
	})
}

// network is what the monitor recorded of the same session.
func network() []byte {
	b, err := json.Marshal(map[string]any{"total": 4, "dropped": 0, "entries": []recorder.RequestEntry{
		{At: after(1), LeaseToken: 42, Method: "GET", URL: "https://shop.example/cart?next=REDACTED&page=2", Type: "Document", Status: 200, Bytes: 812},
		{At: after(2), LeaseToken: 42, Method: "POST", URL: "https://shop.example/search", Type: "XHR", Status: 200, Bytes: 90},
		{At: after(6), LeaseToken: 42, Method: "POST", URL: "https://shop.example/pay", Type: "Document"},
		{At: after(6), LeaseToken: 42, Method: "GET", URL: "https://cdn.example/x.js", Type: "Script", Failed: "net::ERR_ABORTED"},
	}})
	if err != nil {
		panic(err)
	}
	return b
}

func photo(width, height int) []byte {
	var b bytes.Buffer
	if err := jpeg.Encode(&b, image.NewGray(image.Rect(0, 0, width, height)), nil); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// house is a store with the evidence of one profile, and what the launcher knows of it.
type house struct {
	dir     string
	store   evidence.Store
	source  export.Source
	records *records
}

type records struct {
	record api.Profile
	err    error
}

func (r *records) Profile(context.Context, string) (api.Profile, error) { return r.record, r.err }

func (r *records) History(context.Context, string) ([]lease.Event, error) {
	return []lease.Event{
		{Event: "granted", State: lease.Held, SessionID: "ses_1", Token: 42, At: after(0)},
		{Event: "granted", State: lease.Held, SessionID: "ses_0", Token: 41, At: after(-90), TaskID: "task_of_another"},
		{Event: "suspected_stale", State: lease.SuspectedStale, SessionID: "ses_1", Token: 42, At: after(9), Reason: "heartbeat_timeout"},
		{Event: "inspected", State: lease.Inspected, SessionID: "ses_1", Token: 43, At: after(11)},
		{Event: "manual_review", State: lease.ManualReview, SessionID: "ses_1", Token: 43, At: after(12), Decision: "manual_review", Reasons: []string{"an unsafe request was sent"}},
	}, nil
}

func (r *records) Inspection(context.Context, string) (api.Inspection, error) {
	return api.Inspection{Decision: "manual_review", Reasons: []string{"an unsafe request was sent"}, Facts: []api.Fact{{Name: "chrome_gone", Answer: "yes", How: "kernel lock " + hostile}}}, nil
}

// newHouse makes a store with two bundles, of which ev_2 is the newest and names a picture.
func newHouse(t *testing.T, keys evidence.Keys) *house {
	t.Helper()
	h := &house{dir: filepath.Join(t.TempDir(), "store")}
	store, err := evidence.OpenDirStore(h.dir)
	if err != nil {
		t.Fatal(err)
	}
	h.store = store
	spool, err := evidence.OpenEncryptedSpool(t.TempDir(), keys)
	if err != nil {
		t.Fatal(err)
	}
	archive := evidence.NewArchive(spool, store, zerolog.Nop())
	about := evidence.Manifest{
		ProfileID: "shop_018", SessionID: "ses_1", AccountID: "store-18", OldTaskID: "task_101", OldWorkerID: "worker-7", LeaseToken: 42, At: after(10),
		LastKnownURL: "https://shop.example/pay", LastKnownStep: hostile, RecoveryReason: "heartbeat_timeout",
	}
	living := about
	living.LastKnownStep = "cart"
	picture, err := archive.PutPicture(t.Context(), living, photo(40, 30), "")
	if err != nil {
		t.Fatal(err)
	}
	var head evidence.Link
	for _, id := range []string{"ev_1", "ev_2"} {
		m := about
		m.EvidenceID, m.PreviousEvidenceID, m.PreviousManifestSHA256 = id, head.EvidenceID, head.SHA256
		b, err := archive.New(m)
		if err != nil {
			t.Fatal(err)
		}
		add := func(name, kind, mediaType string, content []byte) {
			if err := b.Add(name, kind, mediaType, content); err != nil {
				t.Fatal(err)
			}
		}
		add("screenshot-1.jpg", evidence.KindScreenshot, "image/jpeg", photo(320, 200))
		add("screenshot-2.jpg", evidence.KindScreenshot, "image/jpeg", []byte("<script>no picture</script>"))
		add("journal.jsonl", evidence.KindJournal, "application/x-ndjson", journal())
		add(recorder.NetworkPart, evidence.KindNetwork, "application/json", network())
		b.AddMissing("dom-1.html", evidence.KindDOM, "the renderer was busy")
		b.SetPages([]evidence.PageResult{{URL: "https://shop.example/pay", Title: hostile, Screenshot: "screenshot-1.jpg", Primary: true}})
		b.SetFound([]evidence.Found{{Name: "asks_for_code", Answer: "yes", How: hostile, Picture: "screenshot-1.jpg"}})
		if id == "ev_2" {
			b.SetPictures([]evidence.Picture{picture})
		}
		sealed, sum, err := archive.Save(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		head = evidence.Link{EvidenceID: sealed.EvidenceID, SHA256: sum}
	}
	h.records = &records{record: api.Profile{Record: lease.Record{ProfileID: "shop_018", EvidenceID: head.EvidenceID, EvidenceSHA256: head.SHA256,
		HumanReview: lease.HumanReview{Review: &lease.Review{Decision: "approve", Reviewer: "Ana", EvidenceID: "ev_2", Note: hostile, At: after(99)}}}}}
	h.source = export.Source{Reader: store, With: keys.With, Records: h.records}
	return h
}

func (h *house) export(t *testing.T, q export.Request) string {
	t.Helper()
	e, err := export.Prepare(t.Context(), h.source, q)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := e.Write(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	if want := "leasehold-" + q.EvidenceID + "." + string(q.Format); e.FileName != want {
		t.Errorf("file name %q, want %q", e.FileName, want)
	}
	return b.String()
}

func newKeys(t *testing.T) evidence.Keys {
	t.Helper()
	file := filepath.Join(t.TempDir(), "key")
	if _, err := crypt.WriteIdentity(file); err != nil {
		t.Fatal(err)
	}
	with, err := crypt.ReadIdentities([]string{file})
	if err != nil {
		t.Fatal(err)
	}
	to, err := crypt.ParseRecipients(with.Names())
	if err != nil {
		t.Fatal(err)
	}
	return evidence.Keys{To: to, With: with}
}

func TestABundleThatWasChangedIsRefusedAndMarked(t *testing.T) {
	changed := func(t *testing.T) *house {
		h := newHouse(t, evidence.Keys{})
		if err := os.WriteFile(filepath.Join(h.dir, "ev_2", "journal.jsonl"), bytes.Replace(journal(), []byte("/pay"), []byte("/yap"), 1), 0o600); err != nil {
			t.Fatal(err)
		}
		return h
	}
	h := changed(t)
	for _, format := range export.Formats {
		q := export.Request{EvidenceID: "ev_2", Format: format}
		var unverified *export.UnverifiedError
		if _, err := export.Prepare(t.Context(), h.source, q); !errors.As(err, &unverified) {
			t.Errorf("%s: %v, want an UnverifiedError", format, err)
		} else if f := unverified.Findings; len(f) != 1 || f[0].Problem != evidence.PartChanged || f[0].Part != "journal.jsonl" {
			t.Errorf("%s: findings %v", format, f)
		}
		q.Unverified = true
		got := h.export(t, q)
		if format == export.Zip {
			got = files(t, got)["README.txt"]
		}
		if !strings.Contains(got, "NOT VERIFIED") {
			t.Errorf("%s does not say that it is not verified: %.500s", format, got)
		}
		// The other bundle is whole, and is exported; its chain is not.
		q = export.Request{EvidenceID: "ev_1", Format: format}
		if got := h.export(t, q); strings.Contains(got, "NOT VERIFIED") {
			t.Errorf("%s of ev_1 says that it is not verified", format)
		}
	}

	missing := changed(t)
	if err := os.Remove(filepath.Join(missing.dir, "ev_2", "journal.jsonl")); err != nil {
		t.Fatal(err)
	}
	got := missing.export(t, export.Request{EvidenceID: "ev_2", Format: export.HTML, Unverified: true})
	if !strings.Contains(got, "part_missing ev_2/journal.jsonl") {
		t.Error("the page does not say which part is gone")
	}

	// A manifest that is whole in itself, but not the one that the lease record names.
	h = newHouse(t, evidence.Keys{})
	h.records.record.EvidenceSHA256 = strings.Repeat("0", 64)
	var unverified *export.UnverifiedError
	if _, err := export.Prepare(t.Context(), h.source, export.Request{EvidenceID: "ev_2", Format: export.HAR}); !errors.As(err, &unverified) || unverified.Findings[0].Problem != evidence.BundleChanged {
		t.Errorf("another manifest than the record names: %v", err)
	}
}

func TestAPartThatChangesMeanwhileEndsTheExport(t *testing.T) {
	h := newHouse(t, evidence.Keys{})
	e, err := export.Prepare(t.Context(), h.source, export.Request{EvidenceID: "ev_2", Format: export.HTML})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(h.dir, "ev_2", "screenshot-1.jpg"), photo(1, 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := e.Write(t.Context(), &bytes.Buffer{}); !errors.Is(err, evidence.ErrDamaged) {
		t.Errorf("the changed picture was written: %v", err)
	}
}

func TestEncryptedEvidenceIsExportedWhereTheKeyIs(t *testing.T) {
	keys := newKeys(t)
	h := newHouse(t, keys)
	if got := h.export(t, export.Request{EvidenceID: "ev_2", Format: export.HTML}); !strings.Contains(got, "https://shop.example/pay") || !strings.Contains(got, "data:image/jpeg") {
		t.Error("the page has no URL or no picture")
	}
	if got := h.export(t, export.Request{EvidenceID: "ev_2", Format: export.HAR}); !strings.Contains(got, "https://shop.example/pay") {
		t.Error("the HAR has no URL")
	}
	all := files(t, h.export(t, export.Request{EvidenceID: "ev_2", Format: export.Zip}))
	if all["opened/ev_2/journal.jsonl"] != string(journal()) || !strings.HasPrefix(all["ev_2/journal.jsonl"], "age-encryption.org/") {
		t.Errorf("the archive lacks the journal, stored or in clear; it has %v", names(all))
	}

	h.source.With = nil
	for _, format := range export.Formats {
		if _, err := export.Prepare(t.Context(), h.source, export.Request{EvidenceID: "ev_2", Format: format}); !errors.Is(err, crypt.ErrNoKey) {
			t.Errorf("%s without a key: %v", format, err)
		}
	}
	all = files(t, h.export(t, export.Request{EvidenceID: "ev_2", Format: export.Zip, Stored: true}))
	for name, content := range all {
		if strings.HasPrefix(name, "opened/") || strings.Contains(content, "https://shop.example") {
			t.Errorf("%s of the stored bundle is in clear", name)
		}
	}
}

func TestRequestsThatCannotBeFulfilled(t *testing.T) {
	h := newHouse(t, evidence.Keys{})
	for name, c := range map[string]struct {
		q    export.Request
		want string
	}{
		"no format":       {export.Request{EvidenceID: "ev_2"}, "format"},
		"another format":  {export.Request{EvidenceID: "ev_2", Format: "pdf"}, "format"},
		"stored HTML":     {export.Request{EvidenceID: "ev_2", Format: export.HTML, Stored: true}, "stored"},
		"unknown bundle":  {export.Request{EvidenceID: "ev_9", Format: export.Zip}, "no such evidence"},
		"a way out of it": {export.Request{EvidenceID: "../ev_2", Format: export.Zip}, "no such evidence"},
	} {
		if _, err := export.Prepare(t.Context(), h.source, c.q); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want one with %q", name, err, c.want)
		}
	}
	for _, names := range [][]string{{"../up"}, {"manifest.json"}, {"a.txt", "A.txt"}, {"/etc/passwd"}, {""}} {
		m := evidence.Manifest{EvidenceID: "ev_x", ProfileID: "p"}
		for _, n := range names {
			m.Parts = append(m.Parts, evidence.Part{Name: n})
		}
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		from := h.source
		from.Reader = oneManifest{h.store, b}
		if _, err := export.Prepare(t.Context(), from, export.Request{EvidenceID: "ev_x", Format: export.Zip, Unverified: true}); !errors.Is(err, evidence.ErrDamaged) {
			t.Errorf("parts %q: %v, want ErrDamaged", names, err)
		}
	}
}

// oneManifest has one manifest for every bundle.
type oneManifest struct {
	evidence.Reader
	raw []byte
}

func (o oneManifest) Manifest(context.Context, string) ([]byte, error) { return o.raw, nil }

// A profile whose record is gone still has evidence.
func TestARecordThatIsGoneIsSaid(t *testing.T) {
	h := newHouse(t, evidence.Keys{})
	h.records.err = api.Refuse(api.CodeUnknownProfile, "no profile shop_018")
	if got := h.export(t, export.Request{EvidenceID: "ev_2", Format: export.HTML}); !strings.Contains(got, "no profile shop_018") {
		t.Error("the page does not say that the record is gone")
	}
	h.records.err = errors.New("NATS is away")
	if _, err := export.Prepare(t.Context(), h.source, export.Request{EvidenceID: "ev_2", Format: export.HTML}); err == nil {
		t.Error("exported without the head, which could not be read")
	}
}

func names(all map[string]string) []string {
	var list []string
	for name := range all {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}
