package adopt

import (
	"os"
	"path/filepath"
	"testing"

	"leasehold/internal/signed"
	"leasehold/launcher/sessionfile"
	"leasehold/lease"
)

// TestAForgedSessionDoesNotGoOn: its file names the capability by which anybody would get
// the session, and its pipe log which of the browser's own sessions its worker gets.
func TestAForgedSessionDoesNotGoOn(t *testing.T) {
	for name, forge := range map[string]func(h *host){
		"its file": func(h *host) {
			h.must(os.WriteFile(filepath.Join(h.dir, "sessions", "ses_p.json"),
				[]byte(`{"session_id":"ses_p","capability_sha256":"`+sessionfile.HashCapability("mine")+`","lease_token":1,"manifest":{"profile_id":"p","worker_id":"w","task_id":"t"}}`), 0o600))
		},
		"its file, by a key that is lost": func(h *host) {
			path := filepath.Join(h.dir, "sessions", "ses_p.json")
			b, err := os.ReadFile(path)
			content, _ := signed.Claimed(b)
			h.must(err, os.WriteFile(path, signed.New([32]byte{9}).Sign(signed.Session, "ses_p", content), 0o600))
		},
		"its pipe log": func(h *host) {
			f, err := os.OpenFile(h.files.PipeLog("ses_p"), os.O_APPEND|os.O_WRONLY, 0)
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
			if name != "its pipe log" && got.Reason != lease.ReasonNotAuthentic {
				t.Errorf("because of %q", got.Reason)
			}
			if s, err := l.o.Sessions.ByCapability("mine"); err == nil {
				t.Errorf("the forged capability leads to %s", s.ID())
			}
		})
	}
}
