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
