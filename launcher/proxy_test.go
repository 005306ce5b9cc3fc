package launcher

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"leasehold/launcher/api"
	"leasehold/lease"
)

func TestProxyRefusal(t *testing.T) {
	for name, tt := range map[string]struct {
		r       lease.Record
		asked   string
		refused bool
	}{
		"none, none asked":      {lease.Record{}, "", false},
		"new, first asked":      {lease.Record{}, "p0", false},
		"used, none asked":      {lease.Record{Token: 7}, "", false},
		"used, first asked":     {lease.Record{Token: 7}, "p0", true},
		"mapped, none asked":    {lease.Record{ProxyID: "p0", Token: 7}, "", false},
		"mapped, same asked":    {lease.Record{ProxyID: "p0", Token: 7}, "p0", false},
		"mapped, another asked": {lease.Record{ProxyID: "p0", Token: 7}, "p1", true},
		"new, another asked":    {lease.Record{ProxyID: "p0"}, "p1", true},
	} {
		p := proxyRefusal(tt.r, api.Manifest{ProxyID: tt.asked}, false)
		if (p != nil) != tt.refused || p != nil && (p.Code != api.CodeProxyChanged || p.More["proxy_id"] != tt.r.ProxyID) {
			t.Errorf("%s: %v", name, p)
		}
	}
}

func TestLabelsAreCompared(t *testing.T) {
	for _, tt := range []struct {
		record, asked string
		refused       bool
	}{{"", "p0", false}, {"p0", "", false}, {"p0", "p0", false}, {"p0", "p1", true}} {
		if p := proxyRefusal(lease.Record{Token: 7, ProxyID: tt.record}, api.Manifest{ProxyID: tt.asked}, true); (p != nil) != tt.refused {
			t.Errorf("record %q, asked %q: %v", tt.record, tt.asked, p)
		}
	}
}

// TestAProxyIsNotForgotten: a directory whose last browser went out through a proxy is not
// opened without one, whether it is the configuration that lacks it or the record.
func TestAProxyIsNotForgotten(t *testing.T) {
	l, _ := startLauncher(t)
	dir := userDataDir(t)
	imported := func(profile string) {
		t.Helper()
		if _, err := l.ImportProfile(t.Context(), profile, api.ProfileImport{From: dir}); err != nil {
			t.Fatal(err)
		}
	}
	choose := func(g *grants, r lease.Record) error {
		_, err := g.chooseProxy(t.Context(), r, api.Manifest{ProfileID: r.ProfileID}, filepath.Join(l.o.Root.Dir(), r.ProfileID))
		return err
	}
	labels := &grants{rooms: &rooms{o: Options{Root: l.o.Root}}}
	imported("before")
	if err := choose(labels, lease.Record{ProfileID: "before", ProxyID: "p0"}); err != nil {
		t.Errorf("a label: %v", err)
	}
	if err := choose(l.grants, lease.Record{ProfileID: "before"}); err != nil {
		t.Errorf("none ever: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "leasehold_proxy"), []byte("down"), 0o600); err != nil {
		t.Fatal(err)
	}
	imported("after")
	var p *api.Problem
	for name, err := range map[string]error{
		"no proxies":         choose(labels, lease.Record{ProfileID: "after", ProxyID: "down"}),
		"none in the record": choose(l.grants, lease.Record{ProfileID: "after"}),
	} {
		if !errors.As(err, &p) || p.Code != api.CodeBrowserStartFailed || p.More["proxy_id"] != "down" {
			t.Errorf("%s: %v", name, err)
		}
	}
	// The way out that the refusal names. It is opened through the proxy then, or not at all.
	proxy := "down"
	if _, err := l.PutProfile(t.Context(), "after", api.ProfileSettings{ProxyID: &proxy}); err != nil {
		t.Error(err)
	}
	if _, err := l.Acquire(t.Context(), api.Manifest{ProfileID: "after"}); !errors.As(err, &p) || !strings.Contains(p.Detail, "127.0.0.1:1") {
		t.Errorf("with its proxy, which does not answer: %v", err)
	}
}
