package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"image"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"leasehold/evidence"
	"leasehold/lease"
)

// newAccounts is a web site that one signs in to: it says who is, and counts orders.
func newAccounts(t *testing.T) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /sign-in", func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "account", Value: r.FormValue("name"), MaxAge: 30 * 24 * 3600, HttpOnly: true})
		http.Redirect(w, r, "/", http.StatusSeeOther)
	})
	mux.HandleFunc("POST /order", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		text := `nobody is signed in</p><form action="/sign-in" method="post"><input name="name"><button>sign in</button></form>`
		if c, err := r.Cookie("account"); err == nil {
			text = "signed in as " + html.EscapeString(c.Value) + `</p><button onclick="fetch('/order', {method: 'POST'}).then(() => document.title = 'ordered')">order</button>`
		}
		_, _ = fmt.Fprintf(w, `<!doctype html><title>shop</title><p id="who">%s`, text)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL
}

// shopper is a worker in the shop.
type shopper struct {
	*socket
	page string
}

// at connects a worker to a profile at a host, and opens the shop.
func (s *sidecar) at(t *testing.T, profile, worker, shop string) shopper {
	t.Helper()
	c := dial(t, s.socket(profile, "wait=40s&worker="+worker+"&task=task-of-"+worker))
	page, _ := c.visit(t, shop+"/")
	return shopper{c, page}
}

// reads waits until an expression has a value in the worker's page.
func (c shopper) reads(t *testing.T, expression, want string) {
	t.Helper()
	eventually(t, expression, func() error {
		if got := c.evaluate(t, c.page, expression); got != strconv.Quote(want) {
			return fmt.Errorf("it is %s, want %q", got, want)
		}
		return nil
	})
}

// leaves ends the session in order.
func (c shopper) leaves(t *testing.T) {
	t.Helper()
	c.close(t)
	c.ended(t)
}

const whoIsIn = `document.querySelector('#who')?.innerText ?? ''`

// signsIn signs a person in, and ends the session in order.
func signsIn(t *testing.T, c shopper, person string) {
	t.Helper()
	c.reads(t, whoIsIn, "nobody is signed in")
	c.evaluate(t, c.page, fmt.Sprintf(`document.querySelector("input").value = %q, document.querySelector("button").click()`, person))
	c.reads(t, whoIsIn, "signed in as "+person)
	c.leaves(t)
}

// dies ends everything of a host at once, by SIGKILL: its launcher, its guard and its browsers.
func (s *sidecar) dies(t *testing.T) (browsers int) {
	t.Helper()
	open := s.browsers(t)
	for _, pid := range slices.Concat(s.guards(t), []int{s.cmd.Process.Pid}, open) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Errorf("killing %d: %v", pid, err)
		}
	}
	<-s.done
	return len(open)
}

// shows prints some of the lines that a command prints.
func (s *sidecar) shows(t *testing.T, wantCode int, keep func(line string) bool, args ...string) {
	t.Helper()
	out, errs, code := s.cli(t, args...)
	if code != wantCode {
		t.Fatalf("leasehold %s: exit status %d, want %d\n%s%s", strings.Join(args, " "), code, wantCode, out, errs)
	}
	for i, a := range args {
		if strings.Contains(a, " ") {
			args[i] = "'" + a + "'"
		}
	}
	tell(t, "$ leasehold %s", strings.Join(args, " "))
	shown := 0
	for line := range strings.Lines(out + errs) {
		if line = strings.TrimRight(line, "\n"); line != "" && keep(line) {
			tell(t, "  %s", line)
			shown++
		}
	}
	if shown == 0 {
		t.Errorf("leasehold %s says\n%s%s", strings.Join(args, " "), out, errs)
	}
}

func allLines(string) bool { return true }

// pictureOf finds the picture of a checkpoint among what a host has of a profile, and looks at it.
func (s *sidecar) pictureOf(t *testing.T, profile, checkpoint string) (evidenceID string, err error) {
	t.Helper()
	list := s.stored(t, profile)
	i := slices.IndexFunc(list, func(b stored) bool { return b.Checkpoint == checkpoint })
	if i < 0 || list[i].Parts[0].Missing != "" {
		return "", fmt.Errorf("there is %+v", list)
	}
	var raw []byte
	if code := s.call(t, "GET", "/v1/evidence/"+list[i].EvidenceID+"/"+list[i].Parts[0].Name, nil, &raw); code != 200 {
		return "", fmt.Errorf("%+v: status %d", list[i], code)
	}
	_, _, err = image.Decode(bytes.NewReader(raw))
	return list[i].EvidenceID, err
}

// TestTravelDemo plays the story of docs/travel.md with the real programs: a host dies with a
// browser at work, and its accounts are had on another host. make demo-travel shows its output.
func TestTravelDemo(t *testing.T) {
	if !testing.Verbose() { // nobody watches
		t.Parallel()
	}
	chapter(t, "Two hosts, each with a launcher and a disk of its own, a NATS server, and a folder for snapshots.")
	n := startNATS(t)
	dir := t.TempDir()
	key, store, shop := filepath.Join(dir, "key"), filepath.Join(dir, "store"), newAccounts(t)
	if out, err := exec.Command(binary, "profiles", "keygen", key).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	args := n.args("--home-timeout", "15s", "--profile-store", "file://"+store, "--profile-key", key)
	a, b := start(t, slices.Concat(args, []string{"--launcher-id", "host-a"})...), start(t, slices.Concat(args, []string{"--launcher-id", "host-b"})...)
	tell(t, "host-a: %s   host-b: %s   NATS: %s", a.URL, b.URL, n.url())
	tell(t, "The snapshots are encrypted; both hosts have the key. A lease lasts 15 s here, so that nobody waits long: 30 s otherwise.")

	chapter(t, "1. On host-a two accounts are signed in, and the sessions of the workers end in order.")
	for profile, person := range map[string]string{"shop_018": "ann", "shop_019": "bob"} {
		a.call(t, "PUT", "/v1/profiles/"+profile, map[string]any{"mobility": "free"}, nil)
		signsIn(t, a.at(t, profile, "worker-7", shop), person)
		r := a.sealed(t, profile)
		tell(t, "%s: %s signed in. Snapshot %s of token %d is in the store: the profile may move.", profile, person, r.SnapshotID, r.SnapshotToken)
	}

	chapter(t, "2. A task orders something with shop_019. Its browser is open on host-a, and nobody has shop_018.")
	busy := a.at(t, "shop_019", "worker-8", shop)
	busy.call(t, busy.page, "Lease.checkpoint", map[string]any{"name": "shop_open", "safe": false}, nil)
	eventually(t, "a picture of the checkpoint, at host-b", func() error {
		if _, err := b.pictureOf(t, "shop_019", "shop_open"); err != nil {
			return err
		}
		return nil
	})
	busy.call(t, busy.page, "Lease.step", map[string]any{"name": "submit_order"}, nil)
	busy.evaluate(t, busy.page, `document.querySelector("button").click()`)
	busy.reads(t, "document.title", "ordered")
	var problem map[string]any
	if code := b.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "shop_018", "worker_id": "worker-9"}, &problem); code != 421 {
		t.Fatalf("a profile whose home is there: %d %v", code, problem)
	}
	tell(t, "A worker that asks host-b for shop_018 is sent to its home: %v %v", 421, problem["location"])
	held := a.record(t, "shop_019")

	chapter(t, "3. host-a dies: its launcher, the guard beside it and its browser are killed (kill -9).")
	died := time.Now()
	if browsers := a.dies(t); browsers != 1 {
		t.Errorf("%d browsers were at work", browsers)
	}

	chapter(t, "4. The account that nobody had moves by itself: somebody asks host-b for it.")
	var got struct {
		SessionID string      `json:"session_id"`
		Token     lease.Token `json:"lease_token"`
	}
	eventually(t, "shop_018 at host-b", func() error {
		var raw []byte
		code := b.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "shop_018", "worker_id": "worker-9", "task_id": "task-of-worker-9"}, &raw)
		return errors.Join(json.Unmarshal(raw, &got), wantStatus(code, 201, raw))
	})
	tell(t, "201 after %.1f s: host-a had to be silent for as long as a lease can live, and the snapshot to be fetched and checked.", time.Since(died).Seconds())
	if code := b.call(t, "DELETE", "/v1/sessions/"+got.SessionID, map[string]any{"lease_token": got.Token, "outcome": "done"}, nil); code != 200 {
		t.Errorf("release: %d", code)
	}
	ann := b.at(t, "shop_018", "worker-9", shop)
	ann.reads(t, whoIsIn, "signed in as ann")
	tell(t, "%.1f s after host-a died, a worker at host-b reads in the shop: signed in as ann", time.Since(died).Seconds())
	ann.leaves(t)
	moved := b.until(t, "shop_018", lease.Available)
	if moved.Home != "host-b" || moved.Moved == nil || moved.Moved.From != "host-a" || moved.Moved.Person != "" {
		t.Errorf("%+v", moved)
	}
	b.shows(t, 0, func(line string) bool { return strings.HasPrefix(line, "home") }, "show", "shop_018")

	chapter(t, "5. The account that a task was at work with does not: nobody knows what that did last. A person decides.")
	b.until(t, "shop_019", lease.ManualReview)
	b.shows(t, 0, func(line string) bool {
		return strings.HasPrefix(line, "shop_019 ") || strings.HasPrefix(line, "why ") || strings.HasPrefix(line, "snapshot ") || strings.HasPrefix(line, "what to do ")
	}, "show", "shop_019")
	rehome := []string{"profiles", "rehome", "shop_019", "--snapshot", "newest", "--person", "eve", "--note", "host-a is dead"}
	b.shows(t, 8, allLines, slices.Clone(rehome)...)
	if id, err := b.pictureOf(t, "shop_019", "shop_open"); err != nil {
		t.Errorf("host-b has no picture of the checkpoint: %v", err)
	} else if m := b.bundle(t, "shop_019"); !slices.ContainsFunc(m.Pictures, func(p evidence.Picture) bool { return p.EvidenceID == id }) {
		t.Errorf("the evidence of the loss does not name the picture %s: %+v", id, m.Pictures)
	}
	tell(t, "eve looks up what was done since, in the journal and the pictures of the evidence, and accepts:")
	b.shows(t, 0, allLines, append(slices.Clone(rehome), "--accept-loss")...)
	b.shows(t, 0, allLines, "review", "shop_019", "--decision", "approve", "--token", fmt.Sprint(b.record(t, "shop_019").Token), "--reviewer", "eve", "--note", "the order was placed once")
	bob := b.at(t, "shop_019", "worker-8", shop)
	bob.reads(t, whoIsIn, "signed in as bob")
	now := b.record(t, "shop_019")
	tell(t, "A worker at host-b reads in the shop: signed in as bob. The token is %d; it was %d when host-a died.", now.Token, held.Token)
	if now.Token <= held.Token || now.Home != "host-b" || now.Moved.Person != "eve" {
		t.Errorf("%+v, after %+v", now, held)
	}
	bob.leaves(t)
	b.until(t, "shop_019", lease.Available)

	chapter(t, "6. host-a comes back. Its directories are marked as left, stay as evidence, and are never opened again.")
	a.young = true
	a.launch(t)
	for _, profile := range []string{"shop_018", "shop_019"} {
		a.isLeft(t, profile, "host-b")
		tell(t, "%s: %s is marked by %s.departure; a worker that asks host-a for it gets 421, and is sent to host-b",
			profile, filepath.Join("profiles", profile), filepath.Join("profiles", ".leasehold", profile))
	}
	eventually(t, "the log of host-a to tell of both", func() error { // after it has marked them
		log, err := os.ReadFile(a.stderr.Name())
		if said := bytes.Count(log, []byte("the directory here is marked as left")); err == nil && said != 2 {
			err = fmt.Errorf("it says %d times that a directory is marked", said)
		}
		return err
	})
}

// wantStatus says that an answer has another status.
func wantStatus(code, want int, answer []byte) error {
	if code == want {
		return nil
	}
	return fmt.Errorf("status %d, want %d: %s", code, want, answer)
}
