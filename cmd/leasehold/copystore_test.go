package main

import (
	"bytes"
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"leasehold/launcher/snapshots"
	"leasehold/launcher/snapshots/objectstest"
	"leasehold/lease"
)

// seal DIR KEY PROFILE TOKEN...: makes a snapshot of the profile for each token, in the store of
// the directory, which has the key of the file KEY.
func sealSnapshots(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 4 {
		ts.Fatalf("usage: seal DIR KEY PROFILE TOKEN...")
	}
	key, err := snapshots.ReadKey(ts.MkAbs(args[1]))
	ts.Check(err)
	store := snapshots.New(snapshots.OpenDir(ts.MkAbs(args[0])), key)
	profile := ts.MkAbs("profile-to-seal")
	for _, arg := range args[3:] {
		token, err := strconv.ParseUint(arg, 10, 64)
		ts.Check(err)
		ts.Check(os.MkdirAll(profile, 0o700))
		ts.Check(os.WriteFile(filepath.Join(profile, "Local State"), []byte(strings.Repeat(arg, 50_000)), 0o600))
		content, err := store.Read(context.Background(), args[2], profile, snapshots.ReadOptions{Spool: ts.MkAbs("spool-to-seal")})
		ts.Check(err)
		_, err = store.Seal(context.Background(), content, objectstest.About(lease.Token(token)))
		ts.Check(err)
		ts.Check(content.Close())
	}
}

// TestCopyStoreHasWhatTheRecordsName: where a sidecar says which profiles there are, their records
// say, too, which snapshots have to be in the new store.
func TestCopyStoreHasWhatTheRecordsName(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	oldKey, err := snapshots.WriteKey(in("old.key"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := snapshots.WriteKey(in("new.key")); err != nil {
		t.Fatal(err)
	}
	store := snapshots.New(snapshots.OpenDir(in("old")), oldKey)
	made, err := objectstest.Seal(t, store, "shop", objectstest.Profile().Write(t), 3)
	if err != nil {
		t.Fatal(err)
	}
	var records []lease.Record
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, map[string]any{"items": records})
	}))
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()
	for _, tt := range []struct {
		what    string
		records []lease.Record
		code    int
		says    string // in the outputs
	}{
		{"the snapshot that is there", []lease.Record{{ProfileID: "shop", SnapshotID: made.ID, SnapshotToken: 3}, {ProfileID: "unused"}}, exitDone, "shop: 1 snapshots copied"},
		{"one before it, which was removed", []lease.Record{{ProfileID: "shop", SnapshotID: "snap_OLD", SnapshotToken: 2}}, exitDone, "shop: 0 snapshots copied, 1 there"},
		{"one after it", []lease.Record{{ProfileID: "shop", SnapshotID: "snap_NEW", SnapshotToken: 4}}, exitFailure, "profile shop: its record names snapshot snap_NEW of token 4, and --from does not have it"},
		{"one of a profile that the store does not have", []lease.Record{{ProfileID: "shop"}, {ProfileID: "gone", SnapshotID: "snap_X", SnapshotToken: 1}}, exitFailure, "profile gone: there is no such snapshot"},
		{"nothing: the profile is another sidecar's", []lease.Record{}, exitFailure, "--from has 1 profiles that nobody named"},
	} {
		records = tt.records
		var stdout, stderr bytes.Buffer
		args := []string{"profiles", "copy-store", "--url", server.URL, "--from", "file://" + in("old"), "--from-key", in("old.key"), "--to", "file://" + in("new"), "--to-key", in("new.key")}
		if code := cli(args, strings.NewReader(""), &stdout, &stderr); code != tt.code || !strings.Contains(stdout.String()+stderr.String(), tt.says) || strings.Contains(stdout.String(), "unused") {
			t.Errorf("records name %s: exit code %d\n%s%s", tt.what, code, stdout.String(), stderr.String())
		}
	}
}

// TestTheProgressOfACopy tells which profile it is at, and leaves no part of its line in a line of the
// result.
func TestTheProgressOfACopy(t *testing.T) {
	dir, key := t.TempDir(), snapshots.NewKey()
	var screen bytes.Buffer
	p := &progress{w: &screen}
	p.begin("profile 2 of 7", "pieces")
	store := snapshots.New(p.ofObjects(snapshots.OpenDir(dir)), key)
	if _, err := objectstest.Seal(t, store, "shop", objectstest.Profile().Write(t), 1); err != nil {
		t.Fatal(err)
	}
	if line := screen.String(); !strings.Contains(line, "profile 2 of 7: read 1 pieces, ") {
		t.Errorf("%q", line)
	}
	p.print(&screen, "shop: done")
	if line := screen.String(); !strings.HasSuffix(line, " \rshop: done\n") {
		t.Errorf("%q", line)
	}
}
