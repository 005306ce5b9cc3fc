package evidence_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"leasehold/evidence"
	"leasehold/internal/test/storetest"
)

// Others read the manifest's JSON.
func TestManifestJSON(t *testing.T) {
	s := storetest.Spool(t)
	at := time.Date(2026, 6, 18, 9, 39, 5, 0, time.UTC)
	b, err := s.New(evidence.Manifest{
		EvidenceID: "ev_1", ProfileID: "profile_us_018", SessionID: "s", AccountID: "a", LauncherID: "l", At: at,
		OldWorkerID: "worker-7", OldTaskID: "task_1", LeaseToken: 42, LastHeartbeatAt: at, DetectedStaleAt: at, LastKnownStep: "submit",
		LastKnownURL: "https://example.com/?token=s3cret", ProxyID: "proxy", ProfileDir: "/profiles/x", RecoveryReason: "heartbeat_timeout",
		LastScreenshot: "not yet", Parts: []evidence.Part{{Name: "not yet"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Add("a.txt", evidence.KindOutput, "text/plain", []byte("x")); err != nil {
		t.Fatal(err)
	}
	b.AddMissing("b.txt", evidence.KindOutput, "gone")
	if _, _, err := b.Seal(); err != nil {
		t.Fatal(err)
	}
	raw, err := s.Manifest(t.Context(), "ev_1")
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"evidence_id":"ev_1","profile_id":"profile_us_018","session_id":"s","account_id":"a","launcher_id":"l",` +
		`"at":"2026-06-18T09:39:05Z","old_worker_id":"worker-7","old_task_id":"task_1","lease_token":42,` +
		`"last_heartbeat_at":"2026-06-18T09:39:05Z","detected_stale_at":"2026-06-18T09:39:05Z","last_known_step":"submit",` +
		`"last_known_url":"https://example.com/?token=REDACTED","last_screenshot":"","proxy_id":"proxy","profile_dir":"/profiles/x",` +
		`"recovery_reason":"heartbeat_timeout","previous_evidence_id":"","previous_manifest_sha256":"","pages":[],` +
		`"parts":[{"name":"a.txt","kind":"output","media_type":"text/plain","bytes":1,` +
		`"sha256":"2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"},` +
		`{"name":"b.txt","kind":"output","bytes":0,"sha256":"","missing":"gone"}]}`
	var got bytes.Buffer
	if err := json.Compact(&got, raw); err != nil {
		t.Fatal(err)
	}
	if got.String() != want {
		t.Errorf("manifest\n got %s\nwant %s", got.String(), want)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("ev_1", []byte(`{"evidence_id":"ev_1","parts":[{}],"pages":null}`))
	f.Add("ev_1", []byte(`{`))
	f.Fuzz(func(t *testing.T, evidenceID string, raw []byte) {
		m, err := evidence.Decode(evidenceID, raw)
		if err == nil && m.EvidenceID != evidenceID || err != nil && !errors.Is(err, evidence.ErrDamaged) {
			t.Fatalf("%+v, %v", m, err)
		}
	})
}
