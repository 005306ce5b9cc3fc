// Package witness has the witnesses of a session: whoever saw something of it that matters when its
// worker is lost. Each is in a file of its own, with what it adds to the evidence and the questions
// that it answers; package recovery asks all of them, and decides by their answers.
package witness

import (
	"context"

	"github.com/rs/zerolog"

	"leasehold/evidence"
	"leasehold/launcher/api"
	"leasehold/launcher/browser"
	"leasehold/launcher/profiledir"
	"leasehold/launcher/proxies"
	"leasehold/launcher/recovery"
	"leasehold/launcher/recovery/table"
	"leasehold/launcher/sessionfile"
)

// Options are what the witnesses look at.
type Options struct {
	Root    *profiledir.Root
	Files   sessionfile.Dir
	Archive *evidence.Archive
	// Proxies are what proxy ids stand for; nil: no proxies are configured, and proxy ids are
	// only labels.
	Proxies *proxies.Set
}

// List lists the witnesses, for recovery.Options.
func List(o Options) func(recovery.Browser) []recovery.Witness {
	return func(b recovery.Browser) []recovery.Witness {
		var living *browser.Browser
		if e, ok := b.(ended); ok {
			living = e.Browser
		}
		return []recovery.Witness{
			inTurn{pages{living, o.Archive}, recordings{living, o.Files, o.Archive}, process{living}, standstill{living}},
			journal{},
			directory{o.Root},
			proxy{o.Proxies},
		}
	}
}

// inTurn are witnesses that need the same browser, which is not asked two things at once.
type inTurn []recovery.Witness

func (w inTurn) Add(ctx context.Context, c recovery.Capture, to recovery.Parts) {
	for _, one := range w {
		one.Add(ctx, c, to)
	}
}

func (w inTurn) Facts(ctx context.Context, c recovery.Closed, shown *api.Inspection) []table.Fact {
	var facts []table.Fact
	for _, one := range w {
		facts = append(facts, one.Facts(ctx, c, shown)...)
	}
	return facts
}

// Of is a browser whose session ends; nil for none.
func Of(b *browser.Browser) recovery.Browser {
	if b == nil {
		return nil
	}
	return ended{b}
}

type ended struct{ *browser.Browser }

func (e ended) Close(profile string, keep recovery.KeepCookies, log zerolog.Logger) (method string, killed bool, err error) {
	m, err := e.Browser.Close(profile, keep, log)
	return string(m), m.Killed(), err
}

func (e ended) CompareCookies(ctx context.Context) {
	e.Monitor().Cookies().Compare(e.Cookies(ctx))
}
