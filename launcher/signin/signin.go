package signin

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"leasehold/cdpproxy"
	"leasehold/checkpoint/ledger"
	"leasehold/checkpoint/shape"
	"leasehold/checkpoint/site"
	"leasehold/evidence/capture"
	"leasehold/launcher/secrets"
	"leasehold/lease"
)

//go:embed signin.js
var script string

const (
	// timeout bounds a sign-in, and closeTimeout the end of its session, which otherwise ends with the
	// browser.
	timeout, closeTimeout = time.Minute, 5 * time.Second
	// every is the time between two looks at the page.
	every = 100 * time.Millisecond
	world = "leasehold.sign-in"
)

// Run signs in, in a page of its own. The browser has to be kept private, and the page is closed when it
// no longer is: no field, and nothing that the site shows of what was typed, is left. Nothing is sent once
// the fence is shut. The answer says how it ended; whether the account is signed in has to be asked. An
// error says that the site's answer is not worth asking for. hear gets the page's own events of the
// methods in heard.
func Run(ctx context.Context, mux *cdpproxy.Mux, fence *lease.Fence, f site.File, secret secrets.Secret, hear func(cdpproxy.Event), heard []string) (how string, err error) {
	ctx, cancel := capture.Patience(ctx, timeout)
	defer cancel()
	p := page{fence: fence, clock: capture.NewClock()}
	p.o, err = mux.Listen(ctx, func(e cdpproxy.Event) {
		p.heard(e)
		if slices.Contains(heard, e.Method) {
			hear(e)
		}
	}, append([]string{ledger.Sent, eventReceived}, heard...))
	if err != nil {
		return "", err
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		err = errors.Join(err, p.o.Close(ending))
	}()
	if err := p.open(ctx, f.SignInURL()); err != nil {
		return "", err
	}
	return p.signIn(ctx, *f.SignIn, secret, &progress{
		origin: shape.OriginOf(f.SignInURL()), given: map[field]string{},
		has: map[field]bool{username: secret.Username != "", password: true, code: secret.TOTP != ""},
	})
}

// page is the page in which an account is signed in.
type page struct {
	o       *cdpproxy.Observer
	fence   *lease.Fence
	session string
	clock   *capture.Clock // a page that gets no processor is not one in which nothing happens
	// impostor is an origin that was answered under a certificate that is not valid; nil: none was.
	impostor atomic.Pointer[string]
}

const eventReceived = "Network.responseReceived"

// heard looks at an event of the page for what was answered under a certificate that is not valid. A worker's
// page may have told Chrome to accept it: a connection that stays open from then serves other pages, too.
func (p *page) heard(e cdpproxy.Event) {
	type answered struct {
		URL   string `json:"url"`
		State string `json:"securityState"`
	}
	var r struct {
		Response answered `json:"response"`
		Redirect answered `json:"redirectResponse"`
	}
	if e.Method != ledger.Sent && e.Method != eventReceived || json.Unmarshal(e.Params, &r) != nil {
		return
	}
	for _, a := range []answered{r.Response, r.Redirect} {
		if a.State == "insecure" && strings.HasPrefix(a.URL, "https:") {
			origin := shape.OriginOf(a.URL)
			p.impostor.CompareAndSwap(nil, &origin)
		}
	}
}

// errImpostor says that somebody else may have answered for the site.
var errImpostor = errors.New("answered under a certificate that is not valid: nothing more was typed")

// genuine fails with errImpostor once somebody else may have answered.
func (p *page) genuine() error {
	if origin := p.impostor.Load(); origin != nil {
		return fmt.Errorf("%s %w", *origin, errImpostor)
	}
	return nil
}

func (p *page) call(ctx context.Context, session, method string, params, result any) error {
	return p.o.CallFenced(ctx, p.fence, session, method, params, result)
}

// open goes to the URL. Neither what a worker left in the cache nor its service worker answers.
func (p *page) open(ctx context.Context, url string) error {
	target, err := p.o.CreatePage(ctx)
	if err != nil {
		return err
	}
	var attached struct {
		SessionID string `json:"sessionId"`
	}
	err = p.o.Call(ctx, "", "Target.attachToTarget", map[string]any{"targetId": target, "flatten": true}, &attached)
	p.session = attached.SessionID
	for _, c := range []struct {
		method string
		params map[string]any
	}{
		{"Page.enable", nil},
		{"Network.enable", map[string]any{"maxTotalBufferSize": 1, "maxResourceBufferSize": 1}},
		{"Network.setBypassServiceWorker", map[string]any{"bypass": true}},
		{"Network.setCacheDisabled", map[string]any{"cacheDisabled": true}},
		{"Emulation.setFocusEmulationEnabled", map[string]any{"enabled": true}},
		{"Page.navigate", map[string]any{"url": url}},
	} {
		if err == nil {
			err = p.call(ctx, p.session, c.method, c.params, nil)
		}
	}
	return err
}

// signIn does what next says until nothing more is to be done.
func (p *page) signIn(ctx context.Context, how site.SignIn, secret secrets.Secret, to *progress) (string, error) {
	selectors := map[field]string{username: how.Username, password: how.Password, code: how.Code}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		now, in, err := p.look(ctx, selectors)
		switch {
		case errors.Is(err, errImpostor):
			return "", err
		case err == nil:
			switch s := to.next(now); {
			case s.stop != nil:
				return "", s.stop
			case s.done != "":
				return s.done, nil
			case len(s.fill) > 0:
				if err := p.fill(ctx, in, s.fill, selectors, how.Submit, secret, to); err != nil {
					return "", err
				}
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return "", fmt.Errorf("the sign-in did not come to an end: %w", errors.Join(context.Cause(ctx), err))
		}
		if err := p.fence.Check(); err != nil {
			return "", err
		}
	}
}

// answer is what the script returns.
type answer struct {
	Document string         `json:"document"`
	Origin   string         `json:"origin"`
	Loading  bool           `json:"loading"`
	Shown    map[field]bool `json:"shown"`
	Problem  string         `json:"problem"`
}

// look looks at the page's document, and returns the world in it. It fails while one document takes the
// place of another.
func (p *page) look(ctx context.Context, selectors map[field]string) (now seen, in int64, err error) {
	var tree struct {
		FrameTree struct {
			Frame struct {
				ID string `json:"id"`
			} `json:"frame"`
		} `json:"frameTree"`
	}
	if err := p.call(ctx, p.session, "Page.getFrameTree", nil, &tree); err != nil {
		return now, 0, err
	}
	var made struct {
		Context int64 `json:"executionContextId"`
	}
	if err := p.call(ctx, p.session, "Page.createIsolatedWorld", map[string]any{"frameId": tree.FrameTree.Frame.ID, "worldName": world}, &made); err != nil {
		return now, 0, err
	}
	wanted := map[field]string{}
	for f, selector := range selectors {
		if selector != "" {
			wanted[f] = selector
		}
	}
	a, err := p.run(ctx, made.Context, "look", "", wanted, "")
	return seen{at: p.clock.Now(), document: a.Document, origin: a.Origin, loading: a.Loading, shown: a.Shown}, made.Context, err
}

// fill fills fields of one document, and sends them.
func (p *page) fill(ctx context.Context, in int64, which []field, selectors map[field]string, submit string, secret secrets.Secret, to *progress) error {
	last := ""
	for _, f := range which {
		text := map[field]secrets.Hidden{username: secret.Username, password: secret.Password}[f]
		if f == code {
			var err error
			if text, err = secret.Code(time.Now()); err != nil {
				return err
			}
		}
		last = selectors[f]
		a, err := p.run(ctx, in, "type", to.origin, map[string]string{"field": last, "name": string(f)}, text)
		if err == nil && a.Problem != "" {
			err = errors.New(a.Problem)
		}
		if err != nil {
			return fmt.Errorf("the %s could not be typed: %w", f, err)
		}
		to.filled(f, p.clock.Now())
	}
	a, err := p.run(ctx, in, "submit", to.origin, map[string]string{"field": last, "submit": submit}, "")
	if err == nil && a.Problem != "" {
		err = errors.New(a.Problem)
	}
	if err != nil {
		return fmt.Errorf("the %s could not be sent: %w", which[len(which)-1], err)
	}
	return nil
}

// run calls the script in a world, unless somebody else may have answered for the site.
func (p *page) run(ctx context.Context, in int64, what, origin string, selectors any, text secrets.Hidden) (answer, error) {
	var got struct {
		Result struct {
			Value answer `json:"value"`
		} `json:"result"`
		Thrown *struct {
			Text string `json:"text"`
		} `json:"exceptionDetails"`
	}
	if err := p.genuine(); err != nil {
		return answer{}, err
	}
	err := p.call(ctx, p.session, "Runtime.callFunctionOn", map[string]any{
		"functionDeclaration": script, "executionContextId": in, "returnByValue": true, "userGesture": true,
		"arguments": []map[string]any{{"value": what}, {"value": origin}, {"value": selectors}, {"value": string(text)}},
	}, &got)
	if err == nil && got.Thrown != nil {
		err = errors.New("a selector of the file, or the page, makes the script fail: " + got.Thrown.Text)
	}
	return got.Result.Value, err
}
