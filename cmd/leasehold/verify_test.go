package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/rs/zerolog"

	"leasehold/evidence"
	"leasehold/evidence/crypt"
	"leasehold/internal/test/storetest"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// bundles DIR PROFILE N [KEY]: makes a store with a chain of N bundles, encrypted to the
// owner of the private key in the file KEY if there is one. $HEAD is the newest one.
func makeBundles(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 && len(args) != 4 {
		ts.Fatalf("usage: bundles DIR PROFILE N [KEY]")
	}
	var keys evidence.Keys
	for _, file := range args[3:] {
		with, err := crypt.ReadIdentities([]string{ts.MkAbs(file)})
		ts.Check(err)
		keys.To, err = crypt.ParseRecipients(with.Names())
		ts.Check(err)
	}
	n, err := strconv.Atoi(args[2])
	ts.Check(err)
	store, err := evidence.OpenDirStore(ts.MkAbs(args[0]))
	ts.Check(err)
	spool, err := evidence.OpenEncryptedSpool(ts.MkAbs(args[0]+".spool"), keys)
	ts.Check(err)
	var head evidence.Link
	for i := range n {
		b, err := spool.New(evidence.Manifest{
			EvidenceID: "ev_" + strconv.Itoa(i+1), ProfileID: args[1], LeaseToken: uint64(i + 1),
			PreviousEvidenceID: head.EvidenceID, PreviousManifestSHA256: head.SHA256,
		})
		ts.Check(err)
		ts.Check(b.Add("screenshot-1.jpg", evidence.KindScreenshot, "image/jpeg", []byte("a picture")))
		ts.Check(b.Add("journal.jsonl", evidence.KindJournal, "application/x-ndjson", []byte("{}\n")))
		m, sum, err := b.Seal()
		ts.Check(err)
		head = evidence.Link{EvidenceID: m.EvidenceID, SHA256: sum}
		sealed, err := spool.Open(m.EvidenceID)
		ts.Check(err)
		ts.Check(store.Put(context.Background(), sealed))
	}
	ts.Setenv("HEAD", head.EvidenceID+":"+head.SHA256)
}

// TestVerifyThroughASidecar reads evidence through the documented REST interface.
func TestVerifyThroughASidecar(t *testing.T) {
	dir := t.TempDir()
	store, err := evidence.OpenDirStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	spool := storetest.Spool(t)
	_, first := storetest.Seal(t, spool, "shop", "ev_1", 1, evidence.Link{})
	_, head := storetest.Seal(t, spool, "shop", "ev_2", 2, first)
	if err := evidence.NewArchive(spool, store, zerolog.Nop()).Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	damaged := false // whether the store reports parts as damaged
	problem := func(w http.ResponseWriter, err error) {
		if errors.Is(err, evidence.ErrNotFound) {
			refuse(w, api.Refuse(api.CodeNotFound, "%v", err))
			return
		}
		refuse(w, api.Refuse(api.CodeEvidenceDamaged, "%v", err))
	}
	m := http.NewServeMux()
	m.HandleFunc("GET /v1/profiles", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, 200, map[string]any{"items": []lease.Record{{ProfileID: "shop", EvidenceID: head.EvidenceID, EvidenceSHA256: head.SHA256}, {ProfileID: "new"}}})
	})
	m.HandleFunc("GET /v1/profiles/{id}/evidence", func(w http.ResponseWriter, r *http.Request) {
		list, err := store.List(r.Context(), r.PathValue("id"))
		if err != nil {
			t.Error(err)
		}
		items := []api.Bundle{}
		for _, one := range list {
			items = append(items, api.Bundle{EvidenceID: one.EvidenceID})
		}
		answer(w, 200, map[string]any{"items": items})
	})
	m.HandleFunc("GET /v1/evidence/{id}", func(w http.ResponseWriter, r *http.Request) {
		b, err := store.Manifest(r.Context(), r.PathValue("id"))
		if err != nil {
			problem(w, err)
			return
		}
		_, _ = w.Write(b)
	})
	m.HandleFunc("GET /v1/evidence/{id}/{part}", func(w http.ResponseWriter, r *http.Request) {
		b, err := store.Part(r.Context(), r.PathValue("id"), r.PathValue("part"))
		if damaged {
			err = evidence.ErrDamaged
		}
		if err != nil {
			problem(w, err)
			return
		}
		_, _ = w.Write(b)
	})
	server := httptest.NewServer(m)
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()
	verify := func(want int) verification {
		t.Helper()
		var stdout, stderr bytes.Buffer
		if code := cli([]string{"evidence", "verify", "--json", "--url", server.URL}, strings.NewReader(""), &stdout, &stderr); code != want {
			t.Errorf("exit code %d, want %d: %s", code, want, stderr.String())
		}
		var v verification
		if err := json.Unmarshal(stdout.Bytes(), &v); err != nil {
			t.Fatalf("%v: %s", err, stdout.String())
		}
		return v
	}
	v := verify(exitDone)
	if !v.OK || len(v.Items) != 2 || v.Items[1].Bundles != 2 || !v.Items[1].HeadKnown || v.Items[0].Bundles != 0 {
		t.Errorf("%+v", v)
	}
	damaged = true
	if v := verify(exitEvidence); len(v.Items[1].Findings) != 4 || v.Items[1].Findings[0].Problem != evidence.PartChanged {
		t.Errorf("%+v", v)
	}
	// A bundle is saved whole or not at all.
	saved := t.TempDir()
	fetch := func(want int) []os.DirEntry {
		t.Helper()
		var stderr bytes.Buffer
		if code := cli([]string{"evidence", "shop", "--last", "--out", saved, "--url", server.URL}, strings.NewReader(""), io.Discard, &stderr); code != want {
			t.Errorf("exit code %d, want %d: %s", code, want, stderr.String())
		}
		files, err := os.ReadDir(saved)
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	if files := fetch(exitRefused); len(files) != 0 {
		t.Errorf("of a damaged bundle there is %v", files)
	}
	damaged = false
	if files := fetch(exitDone); len(files) < 2 {
		t.Errorf("of a whole bundle there is %v", files)
	}
	if err := os.RemoveAll(filepath.Join(dir, "ev_2")); err != nil {
		t.Fatal(err)
	}
	if v := verify(exitEvidence); len(v.Items[1].Findings) != 1 || v.Items[1].Findings[0].Problem != evidence.BundleMissing {
		t.Errorf("%+v", v)
	}
}

// TestAStoreThatCannotBeListedIsNoWrongUsage: nothing is known of its evidence then.
func TestAStoreThatCannotBeListedIsNoWrongUsage(t *testing.T) {
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true}) // it keeps nothing
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	defer func() { s.Shutdown(); s.WaitForShutdown() }()
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the NATS server does not start")
	}
	var out, problems bytes.Buffer
	if code := cli([]string{"evidence", "verify", "--store", s.ClientURL()}, strings.NewReader(""), &out, &problems); code != exitFailure {
		t.Errorf("exit code %d, want %d: %s", code, exitFailure, &problems)
	}
}
