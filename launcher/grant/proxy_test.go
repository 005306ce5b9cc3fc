package grant

import (
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
			if p := mappingRefusal(tt.r, api.Manifest{AccountID: tt.account, ProxyID: tt.proxy, Opener: api.Opener{Manages: manages, GivesAccount: manages}}); p != nil {
				got = p.Code
			}
			if got != want {
				t.Errorf("%s, manages %v: %q, want %q", name, manages, got, want)
			}
		}
	}
}
