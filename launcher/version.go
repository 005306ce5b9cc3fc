package launcher

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"leasehold/launcher/api"
	"leasehold/launcher/browser"
)

// webKit is the WebKit version that every Chrome names. It does not change any more.
const webKit = "537.36"

// browserVersion describes a browser with this version, as far as that goes without one that runs.
func browserVersion(number string) api.BrowserVersion {
	major, _, _ := strings.Cut(number, ".")
	return api.BrowserVersion{
		Browser: "Chrome/" + number, ProtocolVersion: "1.3",
		UserAgent:     "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/" + webKit + " (KHTML, like Gecko) Chrome/" + major + ".0.0.0 Safari/" + webKit,
		WebKitVersion: webKit,
	}
}

// asking returns the version of the Chrome that this host has at each call: it may be upgraded meanwhile.
func asking(driver *browser.Driver) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		number, err := driver.Number(ctx)
		if err != nil {
			return "", api.Refuse(api.CodeBrowserStartFailed, "%v", err)
		}
		return number, nil
	}
}

// revisionTimeout bounds how long a browser may take to tell its revision.
const revisionTimeout = 5 * time.Second

// revision is what only a running browser tells.
type revision struct{ Revision, JSVersion string }

// firstAnswer asks all at once, since some may hang or stand still, and returns the first answer. It
// waits for those that it asked in vain.
func firstAnswer[T any](ctx context.Context, asks []func(context.Context) (T, error)) (T, error) {
	ctx, answered := context.WithCancel(ctx)
	var asking sync.WaitGroup
	defer asking.Wait()
	defer answered()
	type outcome struct {
		answer T
		err    error
	}
	outcomes := make(chan outcome, len(asks))
	for _, ask := range asks {
		asking.Go(func() {
			answer, err := ask(ctx)
			outcomes <- outcome{answer, err}
		})
	}
	var none T
	var errs error
	for range asks {
		o := <-outcomes
		if o.err == nil {
			return o.answer, nil
		}
		errs = errors.Join(errs, o.err)
	}
	return none, errs
}

// Version describes the browser: what the binary says and, once a browser has run, the
// revisions that only a running browser can tell. chromedriver does not connect without them.
func (l *Launcher) Version(ctx context.Context) (api.BrowserVersion, error) {
	l.mu.Lock()
	v := l.version
	l.mu.Unlock()
	living := l.host.Sessions.Living()
	if v.V8Version != "" || len(living) == 0 {
		return v, nil
	}
	ctx, cancel := context.WithTimeout(ctx, revisionTimeout)
	defer cancel()
	var asks []func(context.Context) (revision, error)
	for _, s := range living {
		asks = append(asks, func(ctx context.Context) (said revision, err error) {
			err = s.Browser().Mux().Call(ctx, "Browser.getVersion", nil, &said)
			return said, err
		})
	}
	said, err := firstAnswer(ctx, asks)
	if err != nil {
		l.o.Log.Debug().Err(err).Msg("the browser's revision is not known yet")
		return v, nil
	}
	v.V8Version, v.WebKitVersion = said.JSVersion, fmt.Sprintf("%s (%s)", webKit, said.Revision)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.version = v
	return v, nil
}
