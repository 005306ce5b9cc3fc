package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"leasehold/internal/test/s3test"
	"leasehold/launcher/api"
	"leasehold/lease"
)

// badStore stands before a real S3 server, and does on demand what stores do on bad days.
type badStore struct {
	URL string
	*s3test.Server

	mu    sync.Mutex
	mode  string
	heads map[string]listed // the last answers to requests for lists of snapshots
	old   map[string]listed // those of when they were kept
	hits  int               // how many requests the mode changed
	stuck chan struct{}     // closed when the mode ends
}

type listed struct {
	header http.Header
	body   []byte
}

// The modes of a badStore.
const (
	well       = ""           // it passes on everything
	away       = "away"       // connections end without an answer, as those to a host that was cut off
	slow       = "slow"       // each answer takes a while
	full       = "full"       // it stores nothing, and says so
	forgetting = "forgetting" // it stores no chunk, and says that it did
	oldLists   = "old lists"  // it shows the lists that were kept
	stuck      = "stuck"      // it gives no chunk until it is something else
)

func newBadStore(t *testing.T) *badStore {
	t.Helper()
	b := &badStore{Server: s3test.Start(t), heads: map[string]listed{}, stuck: make(chan struct{})}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", b.Addr, r.In.Host // which is signed
		},
		ModifyResponse: func(r *http.Response) error {
			if r.Request.Method != http.MethodGet || !strings.HasSuffix(r.Request.URL.Path, "/head") || r.StatusCode != http.StatusOK {
				return nil
			}
			body, err := io.ReadAll(r.Body)
			if err = errors.Join(err, r.Body.Close()); err != nil {
				return err
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			b.mu.Lock()
			defer b.mu.Unlock()
			b.heads[r.Request.URL.Path] = listed{r.Header.Clone(), body}
			return nil
		},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !b.misbehaves(w, r) {
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(server.Close)
	b.URL = server.URL
	return b
}

// misbehaves tells whether the request was answered as the mode says.
func (b *badStore) misbehaves(w http.ResponseWriter, r *http.Request) bool {
	b.mu.Lock()
	mode, old := b.mode, b.old[r.URL.Path]
	isChunk := strings.Contains(r.URL.Path, "/chunks/")
	hit := mode == away || mode == slow || mode == full && r.Method == http.MethodPut ||
		mode == forgetting && r.Method == http.MethodPut && isChunk || mode == oldLists && r.Method == http.MethodGet && old.body != nil ||
		mode == stuck && r.Method == http.MethodGet && isChunk
	ends := b.stuck
	if hit {
		b.hits++
	}
	b.mu.Unlock()
	if !hit {
		return false
	}
	switch mode {
	case away:
		panic(http.ErrAbortHandler)
	case slow:
		time.Sleep(100 * time.Millisecond)
		return false
	case stuck:
		select {
		case <-ends:
		case <-r.Context().Done():
		}
		return false
	case full:
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(http.StatusInsufficientStorage)
		_, _ = io.WriteString(w, `<?xml version="1.0"?><Error><Code>StorageFull</Code><Message>the store is full</Message></Error>`)
	case forgetting:
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("ETag", `"00000000000000000000000000000000"`)
	case oldLists:
		for name, values := range old.header {
			w.Header()[name] = values
		}
		_, _ = w.Write(old.body)
	}
	return true
}

// is changes what the store does.
func (b *badStore) is(mode string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.stuck)
	b.mode, b.hits, b.stuck = mode, 0, make(chan struct{})
}

// keepLists keeps the lists as they were read last, for oldLists.
func (b *badStore) keepLists(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.heads) == 0 {
		t.Fatal("no list was read: nothing is tested")
	}
	b.old = map[string]listed{}
	for path, a := range b.heads {
		b.old[path] = a
	}
}

// misbehaved fails the test if nothing came of the mode.
func (b *badStore) misbehaved(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hits == 0 {
		t.Errorf("the store had nothing to do while it was %s: nothing is tested", b.mode)
	}
}

// lose removes all chunks that were stored.
func (b *badStore) lose(t *testing.T) {
	t.Helper()
	lost := 0
	err := filepath.WalkDir(b.Root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && strings.Contains(path, "/chunks/") {
			lost++
			err = os.Remove(path)
		}
		return err
	})
	if err != nil || lost == 0 {
		t.Fatalf("%d chunks lost: %v", lost, err)
	}
}

// link is a way to a server that can be cut off, and comes back.
type link struct {
	URL string
	to  string

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]bool
}

func newLink(t *testing.T, to string) *link {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &link{URL: "nats://" + l.Addr().String(), to: to, conns: map[net.Conn]bool{}}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() { k.carry(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		k.set(true)
		work.Wait()
	})
	return k
}

// carry joins a connection with one to the server, until either ends or the link is cut.
func (k *link) carry(c net.Conn) {
	defer func() { _ = c.Close() }()
	s, err := net.Dial("tcp", k.to)
	if err != nil {
		return
	}
	defer func() { _ = s.Close() }()
	k.mu.Lock()
	cut := k.cut
	k.conns[c], k.conns[s] = true, true
	k.mu.Unlock()
	if cut {
		return
	}
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{c, s}, {s, c}} {
		both.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			_, _ = c.Close(), s.Close()
		})
	}
	both.Wait()
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.conns, c)
	delete(k.conns, s)
}

// set cuts the link, or brings it back.
func (k *link) set(cut bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cut = cut
	for c := range k.conns {
		if cut {
			_ = c.Close()
		}
	}
}

// travellersBy starts two launchers on one NATS server, each by a link of its own, and on one
// profile store.
func travellersBy(t *testing.T, store string) (home, other *sidecar, links [2]*link) {
	t.Helper()
	key := filepath.Join(t.TempDir(), "key")
	if out, err := exec.Command(binary, "profiles", "keygen", key).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	n := &natsServer{dir: t.TempDir(), port: -1}
	n.start(t)
	t.Cleanup(n.stop)
	var both [2]*sidecar
	for i, id := range []string{"home", "other"} {
		links[i] = newLink(t, fmt.Sprintf("127.0.0.1:%d", n.port))
		both[i] = start(t, "--nats-url", links[i].URL, "--lease-ttl", "5s", "--profile-store", store, "--profile-key", key, "--launcher-id", id)
	}
	return both[0], both[1], links
}

// stays checks that a profile is where it was, that its home grants it, and that nothing half
// is left of an attempt to have it elsewhere. It returns the record of after the grant.
func stays(t *testing.T, home, other *sidecar, before lease.Record) lease.Record {
	t.Helper()
	id := before.ProfileID
	eventually(t, "nothing to be left of a move", func() error {
		left, err := filepath.Glob(filepath.Join(other.Dir, "profiles", ".leasehold", id+"*arriv*"))
		r := home.record(t, id)
		if err != nil || len(left) != 0 || r.MoveRequest != nil {
			return fmt.Errorf("%v, %v, request %+v", left, err, r.MoveRequest)
		}
		return nil
	})
	r := home.record(t, id)
	if _, err := os.Stat(filepath.Join(other.Dir, "profiles", id)); err == nil && !other.marked(id) {
		t.Error("a directory is there that nobody left")
	}
	if r.Home != before.Home || r.Token != before.Token || r.State != lease.Available || home.marked(id) {
		t.Errorf("the profile is not where it was: %+v, before %+v", r, before)
	}
	if token := home.granted(t, id, false); token != before.Token+1 {
		t.Errorf("granted with token %d after %d", token, before.Token)
	}
	return home.record(t, id)
}

// refusedMove asks for a move by an operator's word, and for one by a person's with the newest
// snapshot. Both have to be refused by name.
func (s *sidecar) refusedMove(t *testing.T, r lease.Record, codes ...string) {
	t.Helper()
	var p map[string]any
	code := s.call(t, "POST", "/v1/profiles/"+r.ProfileID+"/move", map[string]any{"lease_token": r.Token, "person": "ann"}, &p)
	for _, how := range []string{"move", "rehome"} {
		known := false
		for _, want := range codes {
			known = known || p["code"] == want
		}
		if code < 400 || !known {
			t.Errorf("%s: %d %v, want one of %v", how, code, p, codes)
		}
		if how == "move" {
			p = nil
			code, p = s.rehome(t, r.ProfileID, map[string]any{"snapshot": "newest", "ask_home": true})
		}
	}
}

// TestABadProfileStore: whatever the store does while a session ends with a snapshot, while a
// profile moves and while a person gives it another home, the profile stays where it was, goes on
// there, and nothing half is left. A store that is only slow holds up nothing but the move.
func TestABadProfileStore(t *testing.T) {
	t.Parallel()
	store := newBadStore(t)
	home, other, _ := travellersBy(t, "s3://"+s3test.Bucket+"/profiles?endpoint="+store.URL+"&region="+s3test.Region+"&path_style=true")
	home.call(t, "PUT", "/v1/profiles/p", map[string]any{"mobility": "free"}, nil)
	home.granted(t, "p", false)
	home.sealed(t, "p")
	if code := other.call(t, "GET", "/v1/profiles/p/snapshots", nil, nil); code != 200 {
		t.Fatalf("status %d, want 200", code)
	}
	store.keepLists(t)
	home.granted(t, "p", false)
	r := home.sealed(t, "p")

	failures := func() string { return home.metric(t, `leasehold_snapshots_total{result="failed"}`) }
	for _, c := range []struct {
		mode string
		// codes are what a move may be refused with; none where it does not need what fails.
		codes []string
	}{
		{oldLists, []string{api.CodeNotFound, api.CodeSnapshotDamaged}},
		{away, []string{api.CodeProfileStore}},
		{full, nil},
		{forgetting, nil},
	} {
		store.is(c.mode)
		if c.codes != nil {
			other.refusedMove(t, r, c.codes...)
		}
		failed := failures()
		after := stays(t, home, other, r) // a session, whose end wants a snapshot
		eventually(t, "a snapshot that cannot be made, with a store that is "+c.mode, func() error {
			if failures() == failed {
				return errors.New("none failed")
			}
			return nil
		})
		store.misbehaved(t)
		if now := home.record(t, "p"); now.SnapshotID != r.SnapshotID || now.Token != after.Token {
			t.Errorf("%s: the record names a snapshot that is not kept: %+v", c.mode, now)
		}
		store.is(well)
		other.refusedMoveOf(t, after, api.CodeConflict) // its newest snapshot is not of its token
		home.granted(t, "p", false)
		r = home.sealed(t, "p")
		if out, errs, code := home.cli(t, "profiles", "verify", "p", "--snapshot", r.SnapshotID); code != 0 {
			t.Errorf("the snapshot after a store that was %s: %s%s", c.mode, out, errs)
		}
	}

	store.is(slow)
	var moved lease.Record
	if code := other.call(t, "POST", "/v1/profiles/p/move", map[string]any{"lease_token": r.Token, "person": "ann"}, &moved); code != 200 || moved.Home != "other" || moved.Token != r.Token+1 {
		t.Fatalf("with a store that is slow: %d %+v", code, moved)
	}
	store.misbehaved(t)
	home.isLeft(t, "p", "other")
	other.granted(t, "p", false)
	r = other.sealed(t, "p")
	store.is(well)

	// It said that it has everything, and let it be read back, and has it no more.
	store.lose(t)
	home.refusedMove(t, r, api.CodeSnapshotDamaged)
	stays(t, other, home, r)
}

// refusedMoveOf asks for a move by an operator's word, which has to be refused.
func (s *sidecar) refusedMoveOf(t *testing.T, r lease.Record, code string) {
	t.Helper()
	var p map[string]any
	if got := s.call(t, "POST", "/v1/profiles/"+r.ProfileID+"/move", map[string]any{"lease_token": r.Token, "person": "ann"}, &p); got < 400 || p["code"] != code {
		t.Errorf("%d %v, want %s", got, p, code)
	}
}

// TestAPartitionDuringAMove: the launcher that is to have the profile is cut off from NATS while
// it fetches the snapshot; then the home is, for as long as it takes to count as gone. The first
// leaves the profile where it was; in the second it moves, and the old home, which is alive, gives
// it to nobody.
func TestAPartitionDuringAMove(t *testing.T) {
	t.Parallel()
	store := newBadStore(t)
	home, other, links := travellersBy(t, "s3://"+s3test.Bucket+"/profiles?endpoint="+store.URL+"&region="+s3test.Region+"&path_style=true")
	home.call(t, "PUT", "/v1/profiles/p", map[string]any{"mobility": "free"}, nil)
	home.granted(t, "p", false)
	r := home.sealed(t, "p")

	store.is(stuck)
	type answered struct {
		code int
		said []byte
	}
	ends := make(chan answered, 1)
	go func() {
		var a answered
		a.code = other.call(t, "POST", "/v1/profiles/p/move", map[string]any{"lease_token": r.Token, "person": "ann"}, &a.said)
		ends <- a
	}()
	eventually(t, "the fetch", func() error {
		store.mu.Lock()
		defer store.mu.Unlock()
		if store.hits == 0 {
			return errors.New("it has not begun")
		}
		return nil
	})
	links[1].set(true)
	store.is(well)
	if a := <-ends; a.code < 400 || !bytes.Contains(a.said, []byte(`"code"`)) {
		t.Errorf("a move without NATS: %d %s", a.code, a.said)
	}
	links[1].set(false)
	r = stays(t, home, other, r)
	r = home.sealed(t, "p")

	links[0].set(true)
	var got struct {
		SessionID string      `json:"session_id"`
		Token     lease.Token `json:"lease_token"`
	}
	eventually(t, "the profile elsewhere", func() error {
		var problem map[string]any
		if code := home.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "p"}, &problem); code == 201 {
			t.Fatalf("a home that is cut off grants: %v", problem)
		}
		var said []byte
		code := other.call(t, "POST", "/v1/sessions", map[string]any{"profile_id": "p", "task_id": "t"}, &said)
		return errors.Join(wantStatus(code, 201, said), json.Unmarshal(said, &got))
	})
	if got.Token != r.Token+2 {
		t.Errorf("token %d after %d", got.Token, r.Token)
	}
	defer other.beat(t, "p")() // nobody connects, and the home takes its time
	links[0].set(false)
	home.isLeft(t, "p", "other")
	if now := other.record(t, "p"); now.Home != "other" || now.State != lease.Held || now.Token != got.Token {
		t.Errorf("%+v", now)
	}
	if code := other.call(t, "DELETE", "/v1/sessions/"+got.SessionID, map[string]any{"lease_token": got.Token, "outcome": "done"}, nil); code != 200 {
		t.Errorf("release: %d", code)
	}
}
