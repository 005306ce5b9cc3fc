package slots

import (
	"strings"
	"time"

	"leasehold/internal/procfs"
	"leasehold/launcher/api"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/proxies"
	"leasehold/lease"
)

// KeepWarm has the facts that decide whether a browser stays open after a release.
type KeepWarm struct {
	Profile, Manifest *bool  // keep_warm of each; nil if it is not set
	Cookies           string // api.Cookies...
	Started           bool   // by this launcher, so that its arguments are known
	shared            string // why another host could open the directory; empty if it could not
	short             string // why the host is short of memory; empty if it is not
	idle              time.Duration
	limit             int
	draining          bool
}

// Against says why the browser of the profile's directory is not kept warm. It is empty
// if it is kept.
func (t *Table) Against(k KeepWarm, path string) string {
	k.idle, k.limit, k.draining = t.o.KeepWarmIdle, t.o.KeepWarmMax, t.Draining()
	if network := profiledir.NetworkFilesystem(path); network.Answer != profiledir.No {
		k.shared = network.How
	}
	if m, err := procfs.ReadHostMemory(); err == nil {
		k.short = shortage(m, t.o.KeepWarmMinMemory)
	}
	return k.against()
}

func (k KeepWarm) against() string {
	asked := k.Profile
	if asked == nil || *asked {
		// A task may only narrow the profile's setting, and decides if there is none.
		if k.Manifest != nil {
			asked = k.Manifest
		}
	}
	switch {
	case asked == nil || !*asked:
		return "keep_warm is not set"
	case k.idle <= 0 || k.limit <= 0:
		return "this launcher keeps no browser warm (--keep-warm-idle, --keep-warm-max)"
	case k.Cookies == api.CookiesDrop:
		return "its session cookies are to be dropped"
	case k.draining:
		return "the launcher is shutting down"
	case !k.Started:
		return "a launcher before started it"
	case k.shared != "":
		return "the profile's directory may be open on another host: " + k.shared
	case k.short != "":
		return k.short
	}
	return ""
}

// Fit is what a browser was started with, as far as another task may need something
// else.
type Fit struct {
	headless bool
	args     string
	proxy    string // the proxy's sum; empty for none
	account  string
	memory   uint64 // the memory limit in bytes
	readOnly bool
	lease.Appearance
}

// FitOf returns what the manifest's task needs of a browser on the record's profile.
func FitOf(m api.Manifest, r lease.Record, proxy *proxies.Proxy, headless bool, memory uint64) Fit {
	f := Fit{headless: headless, args: strings.Join(m.ChromeArgs, "\x00"), account: r.AccountID, memory: memory, readOnly: m.WantsReadOnly() || r.ReadOnly, Appearance: r.Appearance}
	if f.account == "" {
		f.account = m.AccountID
	}
	if proxy != nil {
		f.proxy = proxy.ID() + " " + proxy.Sum()
	}
	return f
}
