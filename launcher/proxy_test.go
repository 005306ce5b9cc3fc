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

// TestWhoseAccountAndProxyAProfileHas: both are set once, before the first use or, for an account,
// by who may manage profiles; a worker sets neither, whether proxies are configured or only labels.
func TestWhoseAccountAndProxyAProfileHas(t *testing.T) {
	for name, tt := range map[string]struct {
		r               lease.Record
		account, proxy  string
		worker, manager string // the codes with which they are refused
	}{
		"nothing asked":               {lease.Record{}, "", "", "", ""},
		"nothing asked of a used one": {lease.Record{Token: 7}, "", "", "", ""},
		"a new one's proxy":           {lease.Record{}, "", "p0", api.CodeProxyChanged, ""},
		"a new one's account":         {lease.Record{}, "a0", "", api.CodeAccountMismatch, ""},
		"a used one's proxy":          {lease.Record{Token: 7}, "", "p0", api.CodeProxyChanged, api.CodeProxyChanged},
		"a used one's account":        {lease.Record{Token: 7}, "a0", "", api.CodeAccountMismatch, ""},
		"what it has":                 {lease.Record{ProxyID: "p0", AccountID: "a0", Token: 7}, "a0", "p0", "", ""},
		"another proxy":               {lease.Record{ProxyID: "p0", Token: 7}, "", "p1", api.CodeProxyChanged, api.CodeProxyChanged},
		"another proxy of a new one":  {lease.Record{ProxyID: "p0"}, "", "p1", api.CodeProxyChanged, api.CodeProxyChanged},
		"another account":             {lease.Record{AccountID: "a0"}, "a1", "", api.CodeAccountMismatch, api.CodeAccountMismatch},
		"its account, and a proxy":    {lease.Record{AccountID: "a0", Token: 7}, "a0", "p0", api.CodeProxyChanged, api.CodeProxyChanged},
	} {
		for manages, want := range map[bool]string{false: tt.worker, true: tt.manager} {
			got := ""
			if p := mappingRefusal(tt.r, api.Manifest{AccountID: tt.account, ProxyID: tt.proxy, Opener: api.Opener{Manages: manages}}); p != nil {
				got = p.Code
			}
			if got != want {
				t.Errorf("%s, manages %v: %q, want %q", name, manages, got, want)
			}
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
