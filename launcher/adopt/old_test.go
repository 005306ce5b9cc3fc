package adopt

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"leasehold/cdpproxy"
	"leasehold/internal/signed"
	"leasehold/internal/test/testkey"
	"leasehold/launcher/sessionfile"
	"leasehold/lease"
)

// unsigned puts the files on the disk that the version before signatures left of a
// session that it served.
func (h *host) unsigned() sessionfile.Jar {
	h.Helper()
	for from, to := range map[string]string{"guard": "profiles/.leasehold", "sessions": "sessions", "session-cookies": "session-cookies"} {
		h.must(os.CopyFS(filepath.Join(h.dir, to), os.DirFS(filepath.Join("testdata/unsigned", from))))
	}
	return sessionfile.NewJar(h.dir, testkey.Key)
}

// believed counts what of these files is believed.
func (h *host) believed(jar sessionfile.Jar) (n int) {
	h.Helper()
	count := func(err error) {
		if err == nil {
			n++
		} else if !errors.Is(err, signed.ErrNotAuthentic) {
			h.Error(err)
		}
	}
	floor, kept, err := h.root.Kept("shop.1")
	if count(err); err == nil && (floor != 1 || kept.State != lease.Held || kept.Home != "here") {
		h.Errorf("floor %d, %+v", floor, kept)
	}
	running, _, err := h.root.Running("shop.1")
	if count(err); err == nil && (running.SessionID != "ses_1" || running.PID != 20390) {
		h.Errorf("%+v", running)
	}
	f, err := h.files.Read("ses_1")
	if count(err); err == nil && (f.Manifest.ProfileID != "shop.1" || f.Token != 1) {
		h.Errorf("%+v", f)
	}
	_, err = h.files.ReadDigests("ses_1")
	count(err)
	count(jar.Check("shop.1"))
	return n
}

func TestWhatTheVersionBeforeSignaturesLeftIsSignedOnce(t *testing.T) {
	h := newHost(t)
	jar := h.unsigned()
	if n := h.believed(jar); n != 0 {
		t.Fatalf("%d files without a signature are believed", n)
	}
	guard := filepath.Join(h.root.Dir(), ".leasehold")
	another := []byte("7\n" + `{"profile_id":"far","lease_token":7,"home":"there"}` + "\n")
	for name, content := range map[string][]byte{"far.floor": another, "far.browser": []byte(`{"pid":7}` + "\n"), "bad.floor": []byte("seven\n"), "bad.browser": []byte("{")} {
		h.must(os.WriteFile(filepath.Join(guard, name), content, 0o600))
	}
	for range 2 { // the first may have been cut short
		h.must(SignOld("here", h.dir, h.root, h.files, jar, testkey.Key, h.log()))
		if n := h.believed(jar); n != 5 {
			t.Errorf("%d of the files are believed", n)
		}
	}
	l, err := cdpproxy.OpenLedger(h.files.Ledger("ses_1"), testkey.Key)
	if h.must(err); !l.Whole() {
		t.Error("the ledger is not believed")
	}
	h.must(l.Close())
	h.must(jar.KeepNoted("shop.1"))
	if err := jar.Check("shop.1"); err != nil {
		t.Errorf("the cookies that were noted: %v", err)
	}
	for name, want := range map[string][]byte{"far.floor": another, "bad.floor": []byte("seven\n")} {
		if b, err := os.ReadFile(filepath.Join(guard, name)); err != nil || !bytes.Equal(b, want) {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	for _, profile := range []string{"far", "bad"} {
		_, noteErr := os.Stat(filepath.Join(guard, profile+".browser"))
		if _, _, err := h.root.Running(profile); !errors.Is(err, signed.ErrNotAuthentic) || noteErr != nil {
			t.Errorf("the note of %s: %v, %v", profile, err, noteErr)
		}
	}
}

// TestAfterALostKeyNothingIsBelieved: neither what the lost key signed, nor what somebody
// put there without a signature.
func TestAfterALostKeyNothingIsBelieved(t *testing.T) {
	for name, said := range map[string]func(h *host, old *signed.Key) (path string, content []byte){
		"a session file": func(h *host, old *signed.Key) (string, []byte) {
			return filepath.Join(h.dir, "sessions", "ses_2.json"), old.Sign(signed.Session, "ses_2", []byte(`{"session_id":"ses_2"}`))
		},
		"cookies": func(h *host, old *signed.Key) (string, []byte) {
			return filepath.Join(h.dir, "session-cookies", "q.json"), old.Sign(signed.Cookies, "q", []byte("[]"))
		},
		"a floor": func(h *host, old *signed.Key) (string, []byte) {
			return filepath.Join(h.root.Dir(), ".leasehold", "q.floor"), old.Sign(signed.Floor, "q", []byte("7\n"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			jar := h.unsigned()
			path, content := said(h, signed.New([32]byte{9}))
			h.must(os.WriteFile(path, content, 0o600), SignOld("here", h.dir, h.root, h.files, jar, testkey.Key, h.log()))
			if n := h.believed(jar); n != 0 || !strings.Contains(h.said.String(), "the signing key was lost") {
				t.Errorf("%d files are believed; log: %s", n, h.said.String())
			}
		})
	}
	// On a shared folder another launcher has a key of its own.
	h := newHost(t)
	jar := h.unsigned()
	far := []byte("7\n" + `{"profile_id":"far","lease_token":7,"home":"there"}` + "\n")
	h.must(os.WriteFile(filepath.Join(h.root.Dir(), ".leasehold", "far.floor"), signed.New([32]byte{9}).Sign(signed.Floor, "far", far), 0o600),
		SignOld("here", h.dir, h.root, h.files, jar, testkey.Key, h.log()))
	if n := h.believed(jar); n != 5 {
		t.Errorf("beside another launcher's: %d files are believed", n)
	}
}

// TestALivingBrowserOfTheVersionBeforeSignaturesIsAdopted, with its session.
func TestALivingBrowserOfTheVersionBeforeSignaturesIsAdopted(t *testing.T) {
	t.Parallel()
	h := newStoredHost(t)
	jar := sessionfile.NewJar(h.dir, testkey.Key)
	id := h.browser(h.serves("p"))
	guard := filepath.Join(h.root.Dir(), ".leasehold")
	for _, path := range []string{filepath.Join(guard, "p.floor"), filepath.Join(guard, "p.browser"), filepath.Join(h.dir, "sessions", "ses_p.json"), h.files.Ledger("ses_p")} {
		b, err := os.ReadFile(path)
		h.must(err)
		old, had := signed.Claimed(b)
		if strings.HasSuffix(path, ".ledger") {
			var lines []byte
			for line := range bytes.Lines(b) {
				lines = append(append(lines, line[:bytes.LastIndexByte(line, ' ')]...), '\n')
			}
			old, had = lines, len(lines) > 0
		}
		if !had {
			t.Fatalf("%s has no signature: %s", path, b)
		}
		h.must(os.WriteFile(path, old, 0o600))
	}
	h.must(SignOld("here", h.dir, h.root, h.files, jar, testkey.Key, h.log()))
	l := h.launch(nil)
	if got := l.adopts("p"); got.State != lease.Held || got.Token != 1 || l.adoptions() != 1 {
		t.Errorf("%+v, %v adoptions", got, l.adoptions())
	}
	l.end()
	l = h.launch(nil)
	l.presence.over = true
	if got := l.adopts("p"); got.State != lease.ManualReview || h.lives(id) {
		t.Errorf("%+v, the browser lives: %v", got, h.lives(id))
	}
}

// TestAForgedSessionDoesNotGoOn: its file names the capability by which anybody would get
// the session, and its ledger which of the browser's own sessions its worker gets.
func TestAForgedSessionDoesNotGoOn(t *testing.T) {
	for name, forge := range map[string]func(h *host){
		"its file": func(h *host) {
			h.must(os.WriteFile(filepath.Join(h.dir, "sessions", "ses_p.json"),
				[]byte(`{"session_id":"ses_p","capability_sha256":"`+sessionfile.HashCapability("mine")+`","lease_token":1,"manifest":{"profile_id":"p","worker_id":"w","task_id":"t"}}`), 0o600))
		},
		"its ledger": func(h *host) {
			f, err := os.OpenFile(h.files.Ledger("ses_p"), os.O_APPEND|os.O_WRONLY, 0)
			h.must(err)
			_, err = f.WriteString("open 0123456789ABCDEF0123456789ABCDEF 1\n")
			h.must(err, f.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newStoredHost(t)
			id := h.browser(h.serves("p"))
			forge(h)
			l := h.launch(nil)
			got := l.adopts("p")
			if got.State != lease.ManualReview || l.adoptions() != 0 || h.lives(id) || got.EvidenceID == "" {
				t.Errorf("%+v, %v adoptions, the browser lives: %v", got, l.adoptions(), h.lives(id))
			}
			if name == "its file" && got.Reason != lease.ReasonNotAuthentic {
				t.Errorf("because of %q", got.Reason)
			}
			if s, err := l.o.Sessions.ByCapability("mine"); err == nil {
				t.Errorf("the forged capability leads to %s", s.ID())
			}
		})
	}
}
