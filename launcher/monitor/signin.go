package monitor

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/chromedp/cdproto/dom"

	"leasehold/checkpoint"
	"leasehold/evidence/capture"
	"leasehold/launcher/recovery/findings"
)

// signInFields are the fields of a page that asks somebody to sign in, in any language: a field
// for a password, or for a one-time code.
var signInFields = []struct{ name, selector string }{
	{"password", `input[type="password" i]`},
	{"one-time code", `input[autocomplete~="one-time-code" i]`},
}

const (
	// signInTimeout bounds how long all pages together may take to say whether they have such a
	// field, in time that the host gives.
	signInTimeout = time.Second
	// maxFields is how many fields of a page are looked at.
	maxFields = 20
)

// LookForSignIn reports which of the pages to which redirects led ask for a password or a code.
// It reads the pages and runs no script in them. A page that does not answer in time is
// reported as not known.
func (m *Monitor) LookForSignIn(ctx context.Context) {
	ctx, cancel := capture.Patience(ctx, signInTimeout)
	defer cancel()
	for _, pg := range m.Pages() {
		shown := m.answers.document(pg.SessionID)
		if shown.asked == "" {
			continue
		}
		e := checkpoint.Entry{Kind: checkpoint.KindAnswer, URL: shown.url, Asked: shown.asked, Target: pg.TargetID}
		found, problem := m.signInField(ctx, pg)
		if e.SignIn = found; problem != "" {
			e.SignIn, e.Failed = signInFields[0].name, problem
		}
		if e.SignIn != "" {
			m.sink(e)
		}
	}
}

// document is the document that a page shows, given the page's session.
func (a *answers) document(session string) document {
	a.log.mu.Lock()
	defer a.log.mu.Unlock()
	return a.documents[session]
}

// signInField names the field by which a page shows that it asks somebody to sign in; empty if
// it has no visible one. problem says why the page could not be asked.
func (m *Monitor) signInField(ctx context.Context, pg capture.Page) (name, problem string) {
	switch {
	case pg.Crashed:
		return "", "the page's renderer crashed"
	case pg.Dialog != "":
		return "", "a dialog is open"
	}
	call := func(method string, params, result any) bool {
		err := m.chrome.Call(ctx, pg.SessionID, method, params, result)
		if err != nil {
			problem = err.Error()
		}
		return err == nil
	}
	var root dom.GetDocumentResult
	if !call(dom.CommandGetDocument, map[string]any{"depth": 0}, &root) || root.Root == nil {
		return "", problem
	}
	defer m.chrome.Post(pg.SessionID, dom.CommandDisable, nil)
	for _, field := range signInFields {
		var found dom.QuerySelectorAllResult
		if !call(dom.CommandQuerySelectorAll, map[string]any{"nodeId": root.Root.NodeID, "selector": field.selector}, &found) {
			return "", problem
		}
		for _, node := range found.NodeIDs[:min(len(found.NodeIDs), maxFields)] {
			// A field that is not rendered has no box, and the command fails.
			if m.chrome.Call(ctx, pg.SessionID, dom.CommandGetBoxModel, map[string]any{"nodeId": node}, nil) == nil {
				return field.name, ""
			}
		}
	}
	if ctx.Err() != nil {
		return "", "the page did not answer in time"
	}
	return "", ""
}

// returnsTo tells whether the URL to which redirects led has a parameter whose value is the
// place that was requested, or another place at its host if the redirects led to another host:
// that is where the user is to be sent after something else is done.
func returnsTo(asked, reached string) bool {
	from, err := url.Parse(asked)
	if err != nil {
		return false
	}
	to, err := url.Parse(reached)
	if err != nil {
		return false
	}
	_, inFragment, _ := strings.Cut(to.Fragment, "?")
	for _, query := range []string{to.RawQuery, inFragment} {
		values, err := url.ParseQuery(query)
		if err != nil {
			continue
		}
		for _, list := range values {
			if slices.ContainsFunc(list, func(v string) bool { return namesPlace(v, from, to) }) {
				return true
			}
		}
	}
	return false
}

// namesPlace tells whether a parameter's value is the URL of the requested place, or, if the
// redirects led to another host, of another place at the requested host.
func namesPlace(value string, asked, reached *url.URL) bool {
	if plain, err := url.QueryUnescape(value); err == nil && strings.Contains(value, "%") {
		value = plain // it was escaped twice
	}
	whole := strings.HasPrefix(value, "http://") || strings.HasPrefix(value, "https://")
	if !whole && !strings.HasPrefix(value, "/") {
		return false
	}
	u, err := asked.Parse(value)
	if err != nil || !strings.EqualFold(u.Host, asked.Host) {
		return false
	}
	return findings.Place(u.String()) == findings.Place(asked.String()) || whole && !strings.EqualFold(asked.Host, reached.Host)
}
