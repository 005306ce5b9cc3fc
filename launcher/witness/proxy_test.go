package witness

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"leasehold/launcher/proxies"
	"leasehold/launcher/recovery/table"
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
		want          table.Answer
	}{
		"none":                     {"", "", with(nil), nil, false, table.Yes},
		"the same":                 {"p0", "", with(one), one, false, table.Yes},
		"the same, asked for":      {"p0", "p0", with(one), one, false, table.Yes},
		"asked for another":        {"p0", "p1", with(one), one, false, table.No},
		"asked for, and none":      {"", "p1", nil, nil, false, table.No},
		"the record changed":       {"p1", "", with(one), two, false, table.No},
		"the record lost it":       {"", "", with(one), nil, false, table.No},
		"the configuration moved":  {"p0", "", moved, one, false, table.No},
		"the configuration has no": {"p0", "", with(one), nil, false, table.Unknown},
		"nothing known":            {"p0", "", nil, one, false, table.Unknown},
		"a label":                  {"p0", "p0", nil, nil, true, table.Yes},
		"another label":            {"p0", "p1", nil, nil, true, table.No},
		"a label, not a proxy":     {"p0", "", with(one), nil, true, table.Unknown},
	} {
		f := ProxyFact(lease.Record{ProxyID: tt.record}, tt.asked, tt.used, tt.now, tt.labels)
		if f.Answer != tt.want || f.How == "" || f.Name != table.ProxyUnchanged {
			t.Errorf("%s: %+v, want %s", name, f, tt.want)
		}
	}
}
