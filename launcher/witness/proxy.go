package witness

import (
	"context"
	"fmt"

	"leasehold/launcher/api"
	"leasehold/launcher/proxies"
	"leasehold/launcher/recovery"
	"leasehold/launcher/recovery/table"
	"leasehold/launcher/sessionfile"
	"leasehold/lease"
)

// proxy is the witness of the proxy that the browser used.
type proxy struct{ configured *proxies.Set } // nil: none are configured, and proxy ids are labels

func (proxy) Add(context.Context, recovery.Capture, recovery.Parts) {}

func (p proxy) Facts(_ context.Context, c recovery.Closed, _ *api.Inspection) []table.Fact {
	return []table.Fact{ProxyFact(c.Record, c.File.Manifest.ProxyID, c.File.Proxy, p.configured.Find(c.Record.ProxyID), p.configured == nil)}
}

// ProxyFact tells whether the proxy that a browser used is the one that the record and the
// configuration name. asked is the task's proxy, used is the browser's, and now is the
// configured one for the record's proxy id; labels says that no proxies are configured.
func ProxyFact(r lease.Record, asked string, used *sessionfile.ProxyUse, now *proxies.Proxy, labels bool) table.Fact {
	f := table.Fact{Name: table.ProxyUnchanged, Answer: table.No}
	switch {
	case asked != "" && asked != r.ProxyID:
		f.How = fmt.Sprintf("the task was granted with proxy %q, the record has %q", asked, r.ProxyID)
	case used == nil && r.ProxyID == "":
		f.Answer, f.How = table.Yes, "the record has no proxy, and the browser had none"
	case used == nil && labels:
		f.Answer, f.How = table.Yes, fmt.Sprintf("the record has proxy %s, a label: no proxies are configured (--proxies)", r.ProxyID)
	case used == nil:
		f.Answer, f.How = table.Unknown, fmt.Sprintf("the record has proxy %s; what the browser was started with is not known", r.ProxyID)
	case used.ID != r.ProxyID:
		f.How = fmt.Sprintf("the browser was started with proxy %s, the record has %q", used.ID, r.ProxyID)
	case now == nil:
		f.Answer, f.How = table.Unknown, fmt.Sprintf("the browser was started with proxy %s, which the configuration does not have any more", used.ID)
	case now.Sum() != used.Sum:
		f.How = fmt.Sprintf("proxy %s was %s when the browser was started, and is %s, or another user's, now", used.ID, used.Server, now.Server())
	default:
		f.Answer, f.How = table.Yes, fmt.Sprintf("proxy %s, %s, in the record, the browser and the configuration", used.ID, used.Server)
	}
	return f
}
