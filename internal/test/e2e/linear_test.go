package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"leasehold/internal/test/freeport"
	"leasehold/lease"
)

// linearVariable makes the test run of TestLeasesAreLinearizable a long one with a real browser:
// LEASEHOLD_LINEAR=10m.
const linearVariable = "LEASEHOLD_LINEAR"

// shown is how many operations a failed test shows, up to the one that cannot be.
const shown = 40

// gateway is a TCP connection's way to a server, which can be cut.
type gateway struct {
	listener net.Listener
	target   string
	work     sync.WaitGroup

	mu    sync.Mutex
	cut   bool
	conns map[net.Conn]bool
}

func startGateway(t *testing.T, target string) *gateway {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{listener: l, target: target, conns: map[net.Conn]bool{}}
	g.work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			g.work.Go(func() { g.pass(c) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		g.set(true)
		g.work.Wait()
	})
	return g
}

// pass carries one connection, until either side or set ends it.
func (g *gateway) pass(c net.Conn) {
	defer c.Close()
	server, err := net.Dial("tcp", g.target)
	if err != nil || !g.keep(c, server) {
		return
	}
	defer server.Close()
	var back sync.WaitGroup
	back.Go(func() { _, _ = io.Copy(c, server); _ = c.Close() })
	_, _ = io.Copy(server, c)
	_ = server.Close()
	back.Wait()
}

func (g *gateway) keep(conns ...net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range conns {
		if g.cut {
			_ = c.Close()
		} else {
			g.conns[c] = true
		}
	}
	return !g.cut
}

// set cuts every connection and lets no other pass, or lets them pass again.
func (g *gateway) set(cut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cut = cut
	if cut {
		for c := range g.conns {
			_ = c.Close()
		}
		clear(g.conns)
	}
}

// host is a launcher whose way to the store can be cut.
type host struct {
	*sidecar
	at    string // its URL, which stays
	store *gateway
}

// linearRun is a test run of TestLeasesAreLinearizable.
type linearRun struct {
	t     *testing.T
	hosts []host
	start time.Time

	mu     sync.Mutex
	ops    map[string][]porcupine.Operation // by profile
	counts map[string]int                   // "op answer", and faults
}

// do sends one request, and records it as an operation on the profile.
func (r *linearRun) do(ctx context.Context, client int, profile string, in leaseCall, method, url string, body, result any) answer {
	call := time.Since(r.start).Nanoseconds()
	status := r.request(ctx, method, url, body, result)
	out := leaseAnswer{answer: unknown}
	switch {
	case status >= 200 && status < 300:
		out.answer = done
	case status >= 400 && status < 500:
		out.answer = refused
	}
	switch result := result.(type) {
	case *taken:
		out.token = result.Token
	case *left:
		if out.answer == done && !result.Released { // it was lost before its release, or is released later
			out.answer = unknown
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops[profile] = append(r.ops[profile], porcupine.Operation{ClientId: client, Input: in, Call: call, Output: out, Return: time.Since(r.start).Nanoseconds()})
	r.counts[string(in.op)+" "+string(out.answer)]++
	return out.answer
}

// request returns the status of the answer; 0 where there was none.
func (r *linearRun) request(ctx context.Context, method, url string, body, result any) int {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	b, err := json.Marshal(body)
	if err != nil {
		panic(err) // of maps of strings and numbers
	}
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(b))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0
	}
	if resp.StatusCode/100 == 2 && result != nil && json.Unmarshal(raw, result) != nil {
		return 0
	}
	return resp.StatusCode
}

// taken is what a worker is told of its session.
type taken struct {
	ID    string      `json:"session_id"`
	Token lease.Token `json:"lease_token"`
}

// left is what a worker is told of a session that it ended.
type left struct {
	Released bool `json:"released"`
}

// work takes a profile again and again, at its home and at times at the other launcher, writes
// under its token, and leaves it in order, or falls silent and comes back too late.
func (r *linearRun) work(ctx context.Context, client int, profile string, h host, rnd *rand.Rand) {
	pause := func(most time.Duration) {
		select {
		case <-time.After(rand.N(most)):
		case <-ctx.Done():
		}
	}
	home := h
	for n := 0; ctx.Err() == nil; n++ {
		if h = home; n > 0 && rnd.IntN(5) == 0 {
			h = r.hosts[rnd.IntN(len(r.hosts))]
		}
		var s taken
		body := map[string]any{
			"profile_id": profile, "worker_id": fmt.Sprint("w", client), "task_id": fmt.Sprint("t", client, ".", n), "create": true,
			"heartbeat": "explicit", "on_close": "keep",
		}
		if r.do(ctx, client, profile, leaseCall{op: opAcquire}, "POST", h.at+"/v1/sessions", body, &s) != done {
			pause(400 * time.Millisecond)
			continue
		}
		session := h.at + "/v1/sessions/" + s.ID
		write := func() answer {
			return r.do(ctx, client, profile, leaseCall{opWrite, s.Token}, "POST", session+"/steps",
				map[string]any{"lease_token": s.Token, "name": "step", "sensitive": rnd.IntN(2) == 0}, nil)
		}
		release := func() answer {
			return r.do(ctx, client, profile, leaseCall{opRelease, s.Token}, "DELETE", session, map[string]any{"lease_token": s.Token, "outcome": "succeeded"}, &left{})
		}
		for range 1 + rnd.IntN(6) {
			write()
			pause(300 * time.Millisecond)
		}
		if rnd.IntN(3) == 0 { // it falls silent until it has lost the profile
			for a := done; a == done && ctx.Err() == nil; a = write() {
				pause(8 * time.Second)
			}
			continue
		}
		release()
		if rnd.IntN(3) == 0 {
			release()
			write()
		}
	}
}

// review approves what waits for a person, through one launcher.
func (r *linearRun) review(ctx context.Context, client int, h host, profiles []string) {
	for ctx.Err() == nil {
		for _, profile := range profiles {
			var rec lease.Record
			if r.request(ctx, "GET", h.at+"/v1/profiles/"+profile, nil, &rec) != 200 || rec.State != lease.ManualReview {
				continue
			}
			r.do(ctx, client, profile, leaseCall{opReview, rec.Token}, "POST", h.at+"/v1/profiles/"+profile+"/review",
				map[string]any{"decision": "approve", "reviewer": fmt.Sprint("r", client), "lease_token": rec.Token}, nil)
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// faults cuts launchers off the store and kills them, one after the other.
func (r *linearRun) faults(ctx context.Context, rnd *rand.Rand) {
	wait := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	for n := 0; ctx.Err() == nil; n++ {
		h := r.hosts[rnd.IntN(len(r.hosts))]
		what := []string{"cut", "kill", "long cut"}[n%3]
		switch what {
		case "kill":
			h.kill(r.t)
			wait(time.Duration(rnd.IntN(1000)) * time.Millisecond)
			h.launch(r.t)
		default:
			h.store.set(true)
			wait(map[string]time.Duration{"cut": 500 * time.Millisecond, "long cut": 6 * time.Second}[what])
			h.store.set(false)
		}
		r.mu.Lock()
		r.counts[what]++
		r.mu.Unlock()
		wait(2 * time.Second)
	}
}

// missing names what a test run has to have seen and has not.
func (r *linearRun) missing() (what []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, least := range map[string]int{
		"acquire done": 10, "acquire refused": 5, "write done": 20, "write refused": 2, "release done": 4, "release refused": 1,
		"review done": 1, "kill": 1, "cut": 1, "long cut": 1,
	} {
		if r.counts[key] < least {
			what = append(what, fmt.Sprintf("%s: %d of %d", key, r.counts[key], least))
		}
	}
	slices.Sort(what)
	return what
}

// TestLeasesAreLinearizable: what workers and reviewers are answered by two launchers, which
// are killed and cut off from the store, is what one profile could have answered that is
// granted to one at a time. A scripted browser, since none of it is about pages; with
// LEASEHOLD_LINEAR=10m a real one.
func TestLeasesAreLinearizable(t *testing.T) {
	t.Parallel()
	bound, long := time.Duration(0), os.Getenv(linearVariable)
	if long != "" {
		var err error
		if bound, err = time.ParseDuration(long); err != nil {
			t.Fatal(err)
		}
	}
	n := startNATS(t)
	seed := rand.Uint64()
	r := &linearRun{t: t, start: time.Now(), ops: map[string][]porcupine.Operation{}, counts: map[string]int{}}
	for i := range 2 {
		g := startGateway(t, fmt.Sprintf("127.0.0.1:%d", n.port))
		args := []string{
			"--nats-url", "nats://" + g.listener.Addr().String(), "--launcher-id", fmt.Sprint("host-", i), "--lease-ttl", "3s", "--reconnect-grace", "300ms",
			"--listen", fmt.Sprintf("127.0.0.1:%d", freeport.Take(t, 1)[0]),
		}
		if long == "" {
			args = append(args, fakeBrowsers(t)...)
		}
		s := start(t, args...)
		r.hosts = append(r.hosts, host{s, s.URL, g})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	profiles := []string{"p0", "p1"}
	for i, h := range r.hosts {
		for w := range 2 {
			client := 10*i + w
			all.Go(func() { r.work(ctx, client, profiles[i], h, rand.New(rand.NewPCG(seed, uint64(client)))) })
		}
		all.Go(func() { r.review(ctx, 10*i+5, h, profiles) })
	}
	all.Go(func() { r.faults(ctx, rand.New(rand.NewPCG(seed, 99))) })
	deadline := time.Now().Add(max(bound, 5*time.Minute))
	for time.Since(r.start) < bound || len(r.missing()) > 0 && time.Now().Before(deadline) {
		time.Sleep(100 * time.Millisecond)
	}
	cancel()
	all.Wait()
	for _, h := range r.hosts {
		h.store.set(false)
	}
	if what := r.missing(); len(what) > 0 {
		t.Errorf("not everything happened that the test is about: %v", what)
	}
	t.Logf("seed %d, %v: %v", seed, time.Since(r.start).Round(time.Second), r.counts)
	for profile, ops := range r.ops {
		if result := checkLeases(ops); result != porcupine.Ok {
			slices.SortFunc(ops, byCall)
			n := 1 // as many show it
			for n < len(ops) && checkLeases(ops[:n]) == porcupine.Ok {
				n++
			}
			for _, op := range ops[max(0, n-shown):n] {
				t.Logf("%8.3f to %8.3f  client %2d  %v -> %v", float64(op.Call)/1e9, float64(op.Return)/1e9, op.ClientId, op.Input, op.Output)
			}
			t.Errorf("%s: %v: %d operations are not those of one profile, and the first %d show it", profile, result, len(ops), n)
		}
	}
}
