package launcher

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"leasehold/launcher/api"
	"leasehold/launcher/proxies"
	"leasehold/launcher/recovery/decision"
	"leasehold/launcher/sessionfile"
	"leasehold/lease"
)

func proxySet(t *testing.T, servers ...string) *proxies.Set {
	t.Helper()
	path := filepath.Join(t.TempDir(), "proxies.yaml")
	var file strings.Builder
	for i, server := range servers {
		fmt.Fprintf(&file, "p%d: {server: '%s'}\n", i, server)
	}
	if err := os.WriteFile(path, []byte(file.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := proxies.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestProxyFact(t *testing.T) {
	set := proxySet(t, "http://one:1", "http://two:2")
	one, two := set.Find("p0"), set.Find("p1")
	with := func(p *proxies.Proxy) *sessionfile.ProxyUse {
		var o openProfile
		o.use(p)
		return o.proxy
	}
	moved := with(one)
	moved.Sum = two.Sum()
	for name, tt := range map[string]struct {
		record, asked string
		used          *sessionfile.ProxyUse
		now           *proxies.Proxy
		labels        bool
		want          decision.Answer
	}{
		"none":                     {"", "", with(nil), nil, false, decision.Yes},
		"the same":                 {"p0", "", with(one), one, false, decision.Yes},
		"the same, asked for":      {"p0", "p0", with(one), one, false, decision.Yes},
		"asked for another":        {"p0", "p1", with(one), one, false, decision.No},
		"asked for, and none":      {"", "p1", nil, nil, false, decision.No},
		"the record changed":       {"p1", "", with(one), two, false, decision.No},
		"the record lost it":       {"", "", with(one), nil, false, decision.No},
		"the configuration moved":  {"p0", "", moved, one, false, decision.No},
		"the configuration has no": {"p0", "", with(one), nil, false, decision.Unknown},
		"nothing known":            {"p0", "", nil, one, false, decision.Unknown},
		"a label":                  {"p0", "p0", nil, nil, true, decision.Yes},
		"another label":            {"p0", "p1", nil, nil, true, decision.No},
		"a label, not a proxy":     {"p0", "", with(one), nil, true, decision.Unknown},
	} {
		f := proxyFact(lease.Record{ProxyID: tt.record}, tt.asked, tt.used, tt.now, tt.labels)
		if f.Answer != tt.want || f.How == "" || f.Name != decision.ProxyUnchanged {
			t.Errorf("%s: %+v, want %s", name, f, tt.want)
		}
	}
}

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

func TestAProxyIsNotForgotten(t *testing.T) {
	dir, r := t.TempDir(), lease.Record{ProfileID: "p", ProxyID: "p0"}
	if err := proxyForgotten(r, dir); err != nil {
		t.Errorf("a label: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, proxyMark), []byte("p0"), 0o600); err != nil {
		t.Fatal(err)
	}
	var p *api.Problem
	if err := proxyForgotten(r, dir); !errors.As(err, &p) || p.Code != api.CodeBrowserStartFailed || p.More["proxy_id"] != "p0" {
		t.Errorf("a proxy: %v", err)
	}
}

func TestArgument(t *testing.T) {
	line := []byte("chrome\x00--proxy-server=a\x00--x=--proxy-server=b\x00--proxy-server=c\x00")
	if got := argument(line, "--proxy-server="); got != "c" {
		t.Errorf("got %q: Chrome takes the last", got)
	}
	if got := argument(line, "--none="); got != "" {
		t.Errorf("got %q", got)
	}
}
