package launcher

import (
	"bytes"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"leasehold/evidence"
	"leasehold/internal/test/fakechrome"
	"leasehold/launcher/api"
	"leasehold/launcher/principal"
	"leasehold/lease"
)

// counter counts the lines of a log that have a text.
type counter struct {
	text string
	n    *atomic.Int32
}

func (c counter) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte(c.text)) {
		c.n.Add(1)
	}
	return len(line), nil
}

// A proxy that does not answer keeps only the profiles behind it from who asks for any that fits. Where there are
// no others it is named, and it is asked once, however many profiles are behind it.
func TestADeadProxyKeepsBackNoOtherProfile(t *testing.T) {
	var asked atomic.Int32
	log := zerolog.New(counter{"without its proxy", &asked})
	const eu, us = 4, 3 // profiles: all but the last of the first are behind the proxy
	proxyOf := func(region string, n int) string {
		if region == "eu" && n == eu-1 {
			return ""
		}
		return "down"
	}
	start := map[string]func(t *testing.T) func(region string) (api.Session, error){
		"for a lease": func(t *testing.T) func(string) (api.Session, error) {
			o := optionsIn(t, t.TempDir(), evidence.Keys{})
			o.Chrome, o.Log = fakechrome.Binary(t), log
			l := runIn(t, o)
			for region, n := range map[string]int{"eu": eu, "us": us} {
				for i := range n {
					proxy := proxyOf(region, i)
					if _, err := l.PutProfile(t.Context(), fmt.Sprint(region, i), api.ProfileSettings{Labels: &lease.Labels{"region": region}, ProxyID: &proxy}); err != nil {
						t.Fatal(err)
					}
				}
			}
			ctx := principal.In(t.Context(), principal.Principal{Name: "ann", Role: principal.Admin, Profiles: principal.EveryProfile})
			return func(region string) (api.Session, error) {
				return l.Acquire(ctx, api.Manifest{WorkerID: "w", TaskID: "t", Labels: lease.Labels{"region": region}, Wait: api.Duration(time.Minute)})
			}
		},
		"to read": func(t *testing.T) func(string) (api.Session, error) {
			r := startReading(t, 8, func(o *Options) { o.Log = log })
			for region, n := range map[string]int{"eu": eu, "us": us} {
				for i := range n {
					r.readable(fmt.Sprint(region, "-", i), here, func(rec *lease.Record) { rec.ProxyID = proxyOf(region, i) })
				}
			}
			return func(region string) (api.Session, error) {
				return r.readAny(r.as(principal.Worker, "*"), "t", func(m *api.Manifest) { m.Labels = lease.Labels{"region": region} })
			}
		},
	}
	for what, begin := range start {
		t.Run(what, func(t *testing.T) {
			ask := begin(t)
			if s, err := ask("eu"); err != nil || s.ProfileID[len(s.ProfileID)-1:] != fmt.Sprint(eu-1) {
				t.Errorf("of several, one without it: %s, %v", s.ProfileID, err)
			}
			asked.Store(0)
			_, err := ask("us")
			var p *api.Problem
			if !errors.As(err, &p) || p.Code != api.CodeBrowserStartFailed || p.More["proxy_id"] != "down" || fmt.Sprint(p.More["candidates"]) != fmt.Sprint(map[string]int{api.CodeBrowserStartFailed: us}) {
				t.Errorf("all behind it: %v, %+v", err, p)
			}
			if n := asked.Load(); n != 1 {
				t.Errorf("it was asked %d times", n)
			}
		})
	}
}

// A request that waits asks a proxy that does not answer once in a while, not at each of its attempts: meanwhile
// another profile may come free.
func TestAWaitingRequestLeavesADeadProxyAlone(t *testing.T) {
	var asked atomic.Int32
	o := optionsIn(t, t.TempDir(), evidence.Keys{})
	o.Chrome, o.Log, o.MaxBrowsers = fakechrome.Binary(t), zerolog.New(counter{"without its proxy", &asked}), 8
	l := runIn(t, o)
	for id, proxy := range map[string]string{"dead": "down", "held": ""} {
		if _, err := l.PutProfile(t.Context(), id, api.ProfileSettings{Labels: &lease.Labels{"region": "eu"}, ProxyID: &proxy}); err != nil {
			t.Fatal("making profile", id, err)
		}
	}
	if _, err := l.PutProfile(t.Context(), "other", api.ProfileSettings{}); err != nil {
		t.Fatal("making the other profile:", err)
	}
	ctx := principal.In(t.Context(), principal.Principal{Name: "ann", Role: principal.Admin, Profiles: principal.EveryProfile})
	granted := func(id string) api.Session {
		t.Helper()
		s, err := l.Acquire(ctx, api.Manifest{ProfileID: id, WorkerID: "first", TaskID: id})
		if err != nil {
			t.Fatal("leasing", id, err)
		}
		return s
	}
	release := func(s api.Session) {
		t.Helper()
		if _, err := l.Release(ctx, s.SessionID, api.Release{Write: api.Write{Token: s.Token}, Outcome: "ok"}); err != nil {
			t.Fatal("releasing", s.ProfileID, err)
		}
	}
	held := granted("held")
	type result struct {
		s   api.Session
		err error
	}
	got := make(chan result, 1)
	go func() {
		s, err := l.Acquire(ctx, api.Manifest{WorkerID: "w", TaskID: "t", Labels: lease.Labels{"region": "eu"}, Wait: api.Duration(time.Minute)})
		got <- result{s, err}
	}()
	for asked.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	for range 3 { // each of them wakes who waits
		release(granted("other"))
	}
	release(held)
	if r := <-got; r.err != nil || r.s.ProfileID != "held" {
		t.Errorf("it has %s, %v, want the profile that came free", r.s.ProfileID, r.err)
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the proxy was asked %d times", n)
	}
}
