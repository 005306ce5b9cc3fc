package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"leasehold/lease"
)

// jpegHead begins each picture. Encrypted bytes have its first three, by which a JPEG is known, now and
// then, as they have any few bytes that are looked for.
const jpegHead = "\xff\xd8\xff\xe0\x00\x10JFIF"

// TestEncryptedEvidence: with nothing but a recipient, a sidecar recovers a lost worker's
// profile as ever, and nothing of the page can be read at rest or through it. The owner of
// the private key reads all of it, by the command or through a sidecar that has the key.
func TestEncryptedEvidence(t *testing.T) {
	t.Parallel()
	web := newBusySite(t)
	const page = "/list-of-orders" // so long that no encrypted bytes are it
	dir := t.TempDir()
	key, wrong, store := filepath.Join(dir, "key"), filepath.Join(dir, "wrong"), filepath.Join(dir, "store")
	var s sidecar
	recipient, _, code := s.cli(t, "evidence", "keygen", key)
	if _, _, other := s.cli(t, "evidence", "keygen", wrong); code != 0 || other != 0 {
		t.Fatalf("keygen: exit codes %d, %d", code, other)
	}
	running := start(t, "--evidence-recipient", strings.TrimSpace(recipient), "--evidence-store", "file://"+store)
	worker := dial(t, running.socket("p", "worker=w&task=t"))
	session, _ := worker.visit(t, web.URL+page+"?secretplace")
	worker.evaluate(t, session, `fetch("/api", {method: "POST", body: "x"}).then(() => 1)`)
	running.noted(t, "p", "the POST", 1, posted("/api"))
	worker.drop()
	running.until(t, "p", lease.ManualReview)

	answers, how := running.inspection(t, "p")
	if answers["screenshot_available"] != "yes" || answers["cookies_or_storage_changed"] == "unknown" {
		t.Errorf("the recovery does not know what it has to: %v %v", answers, how)
	}
	for _, place := range []string{store, filepath.Join(running.Dir, "evidence-spool")} {
		if err := filepath.WalkDir(place, func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // it was stored, or dropped, meanwhile
			}
			if err != nil || d.IsDir() {
				return err
			}
			content, err := os.ReadFile(path)
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			for _, plain := range []string{page, jpegHead, "\x89PNG\r\n\x1a\n"} {
				if bytes.Contains(content, []byte(plain)) {
					t.Errorf("%s can be read: it has %q", path, plain)
				}
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	m := running.bundle(t, "p")
	var problem struct{ Code, Detail string }
	if code := running.call(t, "GET", "/v1/evidence/"+m.EvidenceID+"/"+m.LastScreenshot, nil, &problem); code != 403 || problem.Code != "evidence_encrypted" || !strings.Contains(problem.Detail, "--evidence-identity") {
		t.Errorf("the picture without the key: %d %+v", code, problem)
	}
	if _, errs, code := running.cli(t, "evidence", "verify", "p"); code != 0 {
		t.Errorf("verify without the key: exit code %d, %s", code, errs)
	}
	if _, errs, code := running.cli(t, "evidence", "verify", "p", "--identity", key); code != 0 {
		t.Errorf("verify with the key: exit code %d, %s", code, errs)
	}
	for _, flags := range [][]string{nil, {"--identity", wrong}} {
		args := append([]string{"evidence", "p", "--last", "--out", filepath.Join(dir, "none")}, flags...)
		if _, errs, code := running.cli(t, args...); code != 10 || !strings.Contains(errs, strings.TrimSpace(recipient)) {
			t.Errorf("saved with %v: exit code %d, %s", flags, code, errs)
		}
	}
	saved := filepath.Join(dir, "saved")
	if _, errs, code := running.cli(t, "evidence", "p", "--last", "--out", saved, "--identity", key); code != 0 {
		t.Fatalf("saved with the key: exit code %d, %s", code, errs)
	}
	picture, err := os.ReadFile(filepath.Join(saved, m.LastScreenshot))
	if err == nil {
		_, _, err = image.Decode(bytes.NewReader(picture))
	}
	journal, journalErr := os.ReadFile(filepath.Join(saved, "journal.jsonl"))
	if err != nil || journalErr != nil || !bytes.Contains(journal, []byte(page)) || !bytes.HasPrefix(picture, []byte(jpegHead)) {
		t.Errorf("the picture: %v; the journal: %v %s", err, journalErr, journal)
	}

	running.stop(t)
	running.args = append(running.args, "--evidence-identity", key)
	running.launch(t)
	list := running.stored(t, "p")
	if len(list) == 0 || !strings.Contains(list[0].LastKnownURL, "/list") {
		t.Errorf("listed by a sidecar with the key: %+v", list)
	}
	running.screenshot(t, "p")
}

// stored is an entry in the list of a profile's evidence.
type stored struct {
	EvidenceID   string      `json:"evidence_id"`
	Token        lease.Token `json:"lease_token"`
	LastKnownURL string      `json:"last_known_url"`
	Checkpoint   string      `json:"checkpoint"`
	Parts        []struct{ Name, Missing string }
}

func (s *sidecar) stored(t *testing.T, profile string) []stored {
	t.Helper()
	var list struct{ Items []stored }
	if code := s.call(t, "GET", "/v1/profiles/"+profile+"/evidence", nil, &list); code != 200 {
		t.Fatalf("evidence of %s: status %d", profile, code)
	}
	return list.Items
}

// TestDescriptorsRunOut: connections take what descriptors a sidecar has. They are refused
// with a sentence, so is a new browser, and what a lost worker leaves is sealed all the
// same.
func TestDescriptorsRunOut(t *testing.T) {
	t.Parallel()
	// The end of a web site of another test closes the default client's idle connections.
	own := &http.Transport{}
	t.Cleanup(own.CloseIdleConnections)
	s, web := startFor(t, &http.Client{Transport: own}), newBusySite(t)
	worker := dial(t, s.socket("p", "worker=w&task=t"))
	session, _ := worker.visit(t, web.URL+"/list")
	worker.evaluate(t, session, `fetch("/api", {method: "POST", body: "x"}).then(() => 1)`)
	s.noted(t, "p", "the POST", 1, posted("/api"))
	s.call(t, "GET", "/healthz", nil, new([]byte)) // this connection stays
	pid := s.cmd.Process.Pid
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	var limit unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &limit); err != nil {
		t.Fatal(err)
	}
	limit.Cur = uint64(len(open)+30) * 4 / 3
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &limit, nil); err != nil {
		t.Fatal(err)
	}
	refused := ""
	for i := 0; refused == "" && i < 2*int(limit.Cur); i++ {
		c, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		if _, err := fmt.Fprint(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, 4096)
		n, err := c.Read(answer)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(answer[:n]), "HTTP/1.1 200") {
			refused = string(answer[:n])
		}
	}
	if !strings.HasPrefix(refused, "HTTP/1.1 503") || !strings.Contains(refused, "too few file descriptors are left") {
		t.Fatalf("refused with %q", refused)
	}
	var problem map[string]any
	if code := s.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "q", "create": true}, &problem); code != http.StatusTooManyRequests || problem["reason"] != "descriptors" {
		t.Errorf("another browser: %d %v", code, problem)
	}
	worker.drop()
	s.until(t, "p", lease.ManualReview)
	m := s.bundle(t, "p")
	for _, p := range m.Parts {
		if strings.Contains(p.Missing, "too many open files") {
			t.Errorf("part %s: %s", p.Name, p.Missing)
		}
	}
	if m.LastScreenshot == "" || len(m.Parts) < 10 {
		t.Errorf("%+v", m)
	}
}
