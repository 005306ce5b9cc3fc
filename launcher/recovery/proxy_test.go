package recovery

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
		if p == nil {
			return nil
		}
		return &sessionfile.ProxyUse{ID: p.ID(), Server: p.Server(), Sum: p.Sum()}
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
		f := ProxyFact(lease.Record{ProxyID: tt.record}, tt.asked, tt.used, tt.now, tt.labels)
		if f.Answer != tt.want || f.How == "" || f.Name != decision.ProxyUnchanged {
			t.Errorf("%s: %+v, want %s", name, f, tt.want)
		}
	}
}
