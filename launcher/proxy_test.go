package launcher

import (
	"errors"
	"os"
	"path/filepath"
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

func TestAProxyIsNotForgotten(t *testing.T) {
	dir, r := t.TempDir(), lease.Record{ProfileID: "p", ProxyID: "p0"}
	if err := proxyForgotten(r, dir); err != nil {
		t.Errorf("a label: %v", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "leasehold_proxy"), []byte("p0"), 0o600); err != nil {
		t.Fatal(err)
	}
	var p *api.Problem
	if err := proxyForgotten(r, dir); !errors.As(err, &p) || p.Code != api.CodeBrowserStartFailed || p.More["proxy_id"] != "p0" {
		t.Errorf("a proxy: %v", err)
	}
}
