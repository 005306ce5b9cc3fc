package httpapi

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"leasehold/launcher/api"
	"leasehold/launcher/principal"
)

// wire carries questions between the launchers of a test.
type wire struct {
	mu        sync.Mutex
	launchers map[string]func([]byte) []byte
	asked     [][]byte
}

func (w *wire) Call(_ context.Context, launcherID string, question []byte) ([]byte, error) {
	w.mu.Lock()
	answer := w.launchers[launcherID]
	w.asked = append(w.asked, question)
	w.mu.Unlock()
	if answer == nil {
		return nil, errors.New("nobody answers")
	}
	return answer(question), nil
}

func (w *wire) Answer(launcherID string, answer func([]byte) []byte) (func(), error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.launchers[launcherID] = answer
	return func() {}, nil
}

// tokenGate knows these tokens, each as NAME, ROLE, PATTERN.
func tokenGate(t *testing.T, entries map[string][3]string) *principal.Gate {
	t.Helper()
	var file strings.Builder
	file.WriteString("tokens:\n")
	for token, e := range entries {
		fmt.Fprintf(&file, "  - {name: %s, sha256: \"%s\", role: %s, profiles: [\"%s\"]}\n", e[0], hexOf(token), e[1], e[2])
	}
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(path, []byte(file.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	g, err := principal.NewGate(principal.Options{Own: uint32(os.Geteuid()), File: path, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

const (
	workersToken = "the-token-of-the-worker-at-both"
	viewersToken = "the-token-of-a-worker-who-is-a-viewer-at-home"
	localToken   = "the-token-that-only-the-first-knows"
)

// twoLaunchers are one that the callers ask, and the home of shop_1.
func twoLaunchers(t *testing.T) (asked, home *fixture, carrier *wire, conn *connection) {
	t.Helper()
	carrier = &wire{launchers: map[string]func([]byte) []byte{}}
	worker := [3]string{"worker", "worker", "shop_*"}
	gates := []*principal.Gate{
		tokenGate(t, map[string][3]string{workersToken: worker, viewersToken: {"viewer", "worker", "*"}, localToken: {"local", "admin", "*"}}),
		tokenGate(t, map[string][3]string{workersToken: {"worker-at-home", "worker", "shop_1"}, viewersToken: {"viewer", "viewer", "*"}}),
	}
	conn = newConnection(nil)
	mine := held
	mine.ProfileID = "shop_1"
	home = serve(t, Options{Gate: gates[1], Referrals: referralsOf(t, "h", gates[1], carrier)}, map[string]any{
		"Acquire": mine, "Connect": api.Connection(conn), "SessionByCapability": api.Refuse(api.CodeUnknownSession, "no session has this capability"),
	})
	asked = serve(t, Options{Gate: gates[0], Referrals: referralsOf(t, "a", gates[0], carrier)}, map[string]any{
		"Acquire": api.Refuse(api.CodeWrongHome, "profile lives elsewhere").With("home_launcher", "h").With("location", home.URL),
		"Version": chromium, "SessionByCapability": api.Refuse(api.CodeUnknownSession, "no session has this capability"),
	})
	return asked, home, carrier, conn
}

func referralsOf(t *testing.T, launcher string, g *principal.Gate, carrier Carrier) *Referrals {
	t.Helper()
	r := NewReferrals(launcher, g, carrier, zerolog.Nop())
	stop, err := r.Listen()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return r
}

// try asks for an upgrade and returns the answer to it.
func (f *fixture) try(path string, headers ...string) *http.Response {
	f.t.Helper()
	nc := f.dial()
	defer nc.Close()
	if _, err := nc.Write([]byte(f.upgrade(path, headers...))); err != nil {
		f.t.Fatal(err)
	}
	r, err := http.ReadResponse(bufio.NewReader(nc), nil)
	if err != nil {
		f.t.Fatal(err)
	}
	return r
}

// TestACallerIsSentHomeWithoutItsToken: however the token was shown, the redirect has a secret
// in its place, which opens the one session, once, as who the token is at the home.
func TestACallerIsSentHomeWithoutItsToken(t *testing.T) {
	const one = "/devtools/browser/shop_1?worker=w&task=t&wait=5s"
	for _, how := range []string{"header", "query", "ticket"} {
		t.Run(how, func(t *testing.T) {
			asked, home, carrier, conn := twoLaunchers(t)
			var r *http.Response
			switch how {
			case "header":
				r = asked.try(one, "Authorization: Bearer "+workersToken)
			case "query":
				r = asked.try(one + "&token=" + workersToken)
			case "ticket":
				_, body := asked.request("GET", "/profiles/shop_1/json/version/?worker=w&task=t&wait=5s&token="+workersToken, "")
				_, after, _ := strings.Cut(body, "ws://"+asked.addr())
				ticketed, _, _ := strings.Cut(after, `"`)
				r = asked.try(ticketed)
			}
			location := r.Header.Get("Location")
			at, ok := strings.CutPrefix(location, "ws://"+home.addr())
			if r.StatusCode != 307 || !ok || aTicket.ReplaceAllString(at, "/s/SECRET/") != "/s/SECRET/devtools/browser/shop_1" {
				t.Fatalf("%s to %q, want the home with a secret", r.Status, location)
			}
			secret := strings.Split(at, "/")[2]
			// A look at the URL does not use it up.
			if r, body := home.request("GET", "/s/"+secret+"/json/version", ""); r.StatusCode != 404 {
				t.Errorf("discovery: %s %s", r.Status, body)
			}
			if r := home.try(strings.Replace(at, "shop_1", "shop_2", 1)); r.StatusCode != 400 {
				t.Errorf("another profile: %s, want 400", r.Status)
			}
			if r := home.try(at); r.StatusCode != 404 {
				t.Errorf("after it was tried for another profile: %s, want that it is gone", r.Status)
			}
			home.taken()
			// As a client that connects again.
			again := asked.try(one, "Authorization: Bearer "+workersToken).Header.Get("Location")
			again = strings.TrimPrefix(again, "ws://"+home.addr())
			if r := home.try(again); r.StatusCode != 101 {
				t.Fatalf("at the home: %s", r.Status)
			}
			<-conn.served
			if calls := home.taken(); !slices.Contains(calls, `Acquire {"task_id":"t","worker_id":"w","profile_id":"shop_1","wait":"5s"} true`) {
				t.Errorf("calls %q", calls)
			}
			if log := home.log.String(); !strings.Contains(log, `"principal":"worker-at-home"`) {
				t.Errorf("the home does not say who it is: %s", log)
			}
			if r := home.try(again); r.StatusCode != 404 {
				t.Errorf("for the second time: %s, want 404", r.Status)
			}
			carrier.mu.Lock()
			defer carrier.mu.Unlock()
			for _, text := range append(carrier.asked, []byte(asked.log.String()), []byte(home.log.String())) {
				for _, hidden := range []string{workersToken, hexOf(workersToken), secret} {
					if strings.Contains(string(text), hidden) {
						t.Errorf("%q shows %s", text, hidden)
					}
				}
			}
		})
	}
}

// TestAReferralGivesNoMoreThanTheToken: what the home would refuse to the token, it refuses.
func TestAReferralGivesNoMoreThanTheToken(t *testing.T) {
	asked, home, _, _ := twoLaunchers(t)
	// Somebody who is nobody there is told so, and goes nowhere.
	r := asked.try("/devtools/browser/shop_1?worker=w&task=t", "Authorization: Bearer "+localToken)
	if r.StatusCode != 421 || r.Header.Get("Location") != "" || !strings.Contains(r.Status, "nobody's there") {
		t.Errorf("a token that the home does not know: %s %v", r.Status, r.Header)
	}
	for token, path := range map[string]string{viewersToken: "/devtools/browser/shop_1?worker=w&task=t", workersToken: "/devtools/browser/shop_2?worker=w&task=t"} {
		r := asked.try(path, "Authorization: Bearer "+token)
		at := strings.TrimPrefix(r.Header.Get("Location"), "ws://"+home.addr())
		if r.StatusCode != 307 {
			t.Fatalf("%s", r.Status)
		}
		if r := home.try(at); r.StatusCode != 403 || slices.ContainsFunc(home.taken(), func(c string) bool { return strings.HasPrefix(c, "Acquire") }) {
			t.Errorf("%s at the home: %s, want 403", path, r.Status)
		}
	}
	// Whoever shows no token has nothing to be replaced.
	r = asked.try("/devtools/browser/shop_1?worker=w&task=t")
	if got, want := r.Header.Get("Location"), "ws://"+home.addr()+"/devtools/browser/shop_1?worker=w&task=t"; r.StatusCode != 307 || got != want {
		t.Errorf("a user of the host: %s to %s, want %s", r.Status, got, want)
	}
}

// TestWhatIsNoWishIsRefused plays who can write to launchers on NATS and has no token.
func TestWhatIsNoWishIsRefused(t *testing.T) {
	hash := principal.Hash(workersToken)
	r := referralsOf(t, "h", tokenGate(t, map[string][3]string{workersToken: {"worker", "worker", "*"}}), &wire{launchers: map[string]func([]byte) []byte{}})
	now := time.Now()
	question := func(w wish, mac func([]byte) []byte) []byte {
		t.Helper()
		b, err := json.Marshal(w)
		if err != nil {
			t.Fatal(err)
		}
		if b, err = json.Marshal(vouched{b, mac(b)}); err != nil {
			t.Fatal(err)
		}
		return b
	}
	sound := wish{Home: "h", From: "a", Profile: "p", Query: "task=t&worker=w"}
	good := question(sound, hash.Vouch)
	for name, q := range map[string][]byte{
		"nothing": nil, "no wish": []byte(`{}`), "text": []byte("x"),
		"no MAC":           question(sound, func([]byte) []byte { return nil }),
		"another token":    question(sound, principal.Hash("another").Vouch),
		"the hash as MAC":  question(sound, func([]byte) []byte { return hash[:] }),
		"another home":     question(wish{Home: "b", Profile: "p", Query: "task=t&worker=w"}, hash.Vouch),
		"no profile":       question(wish{Home: "h", Query: "task=t&worker=w"}, hash.Vouch),
		"a bad query":      question(wish{Home: "h", Profile: "p", Query: "%zz"}, hash.Vouch),
		"no such manifest": question(wish{Home: "h", Profile: "p", Query: "tusk=t"}, hash.Vouch),
		"changed":          []byte(strings.Replace(string(good), `"wish":"e`, `"wish":"f`, 1)),
	} {
		if sealed, err := r.make(q, now); err == nil || sealed != nil {
			t.Errorf("%s: taken", name)
		}
	}
	if len(r.unused) != 0 {
		t.Errorf("%d referrals of what was refused", len(r.unused))
	}
	// Asked again with the same words: another secret, which again only the token's owner reads.
	var secrets []string
	var v vouched
	if err := json.Unmarshal(good, &v); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		sealed, err := r.make(good, now)
		if err != nil {
			t.Fatal(err)
		}
		for name, open := range map[string]func() ([]byte, error){
			"another token": func() ([]byte, error) { return principal.Hash("another").Unseal(sealed, v.MAC) },
			"another wish":  func() ([]byte, error) { return hash.Unseal(sealed, []byte("x")) },
			"half of it":    func() ([]byte, error) { return hash.Unseal(sealed[:len(sealed)/2], v.MAC) },
			"nothing":       func() ([]byte, error) { return hash.Unseal(nil, v.MAC) },
		} {
			if b, err := open(); err == nil {
				t.Errorf("%s opens it: %s", name, b)
			}
		}
		secret, err := hash.Unseal(sealed, v.MAC)
		if err != nil {
			t.Fatal(err)
		}
		secrets = append(secrets, string(secret))
	}
	if secrets[0] == secrets[1] {
		t.Error("the same secret twice")
	}
	if _, ok := r.use(secrets[0], now.Add(referralLife-1)); !ok {
		t.Error("it cannot be used in time")
	}
	if _, ok := r.use(secrets[1], now.Add(referralLife)); ok {
		t.Error("it can be used when its time is over")
	}
}

// However many are asked for, a bounded number is kept: the newest.
func TestReferralsAreBounded(t *testing.T) {
	r := NewReferrals("h", nil, nil, zerolog.Nop())
	now := time.Now()
	keep := func(at time.Duration) string {
		return r.keep(ticket{expires: now.Add(at + referralLife)}, now.Add(at))
	}
	first := keep(0)
	second := keep(1)
	for n := range maxReferrals - 1 {
		keep(time.Duration(n + 2))
	}
	if _, ok := r.use(first, now); ok || len(r.unused) != maxReferrals {
		t.Errorf("the oldest is kept: %v, of %d", ok, len(r.unused))
	}
	if _, ok := r.use(second, now); !ok {
		t.Error("the second is not kept")
	}
	keep(0)
	keep(referralLife + time.Minute) // all the others are over
	if len(r.unused) != 1 {
		t.Errorf("%d are kept, want the one that is not over", len(r.unused))
	}
}
