package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"leasehold/cdpproxy"
	"leasehold/internal/durable"
	"leasehold/lease"
)

// cookieJar carries session cookies from one session of a profile to the next:
// Chrome drops them when it closes, and an account would be logged out by a
// handover. The files are as private as the profile they come from.
type cookieJar struct{ dir string }

func cookiesDir(dataDir string) string { return filepath.Join(dataDir, "session-cookies") }

// cookie is what Storage.getCookies tells and Storage.setCookies takes.
type cookie struct {
	Name         string          `json:"name"`
	Value        string          `json:"value"`
	URL          string          `json:"url,omitempty"`
	Domain       string          `json:"domain,omitempty"`
	Path         string          `json:"path,omitempty"`
	Secure       bool            `json:"secure,omitempty"`
	HTTPOnly     bool            `json:"httpOnly,omitempty"`
	SameSite     string          `json:"sameSite,omitempty"`
	Priority     string          `json:"priority,omitempty"`
	SourceScheme string          `json:"sourceScheme,omitempty"`
	SourcePort   int             `json:"sourcePort,omitempty"`
	PartitionKey json.RawMessage `json:"partitionKey,omitempty"`
	// Expires is in seconds since 1970; zero: a session cookie.
	Expires float64 `json:"expires,omitempty"`
}

func (j cookieJar) path(profile string) string {
	return filepath.Join(j.dir, lease.Key(profile)+".json")
}

// lasting is the file with the cookies of a warm browser that Chrome itself keeps.
func (j cookieJar) lasting(profile string) string {
	return filepath.Join(j.dir, lease.Key(profile)+".lasting.json")
}

// export saves the session cookies of the browser's own context.
func (j cookieJar) export(ctx context.Context, o *cdpproxy.Observer, profile string) error {
	// restore removes the file when it is done: while it is there, its cookies
	// are not in this browser yet.
	if _, err := os.Stat(j.path(profile)); err == nil {
		return nil
	}
	return j.renew(ctx, o, profile)
}

// renew is export for a browser that was warm: the file is of its own cookies, as they
// were when it became so.
func (j cookieJar) renew(ctx context.Context, o *cdpproxy.Observer, profile string) error {
	return j.saveSession(ctx, o, profile, j.path(profile))
}

// saveSession saves the session cookies of a browser in a file.
func (j cookieJar) saveSession(ctx context.Context, o *cdpproxy.Observer, profile, path string) error {
	session, _, err := cookiesOf(ctx, o)
	if err != nil {
		return fmt.Errorf("session cookies of %s: %w", profile, err)
	}
	return j.save(path, profile, session)
}

// hold saves all cookies of a browser that stays open. Chrome writes its own only
// every half minute: should it crash while nobody uses it, none is lost.
func (j cookieJar) hold(ctx context.Context, o *cdpproxy.Observer, profile string) error {
	session, lasting, err := cookiesOf(ctx, o)
	if err != nil {
		return fmt.Errorf("session cookies of %s: %w", profile, err)
	}
	return errors.Join(j.save(j.path(profile), profile, session), j.save(j.lasting(profile), profile, lasting))
}

// settled says that the browser was closed in order: Chrome has kept what it keeps.
func (j cookieJar) settled(profile string) error {
	return remove(j.lasting(profile), profile)
}

// cookiesOf reads the cookies of the browser's own context: those that Chrome drops
// when it closes, and the others.
func cookiesOf(ctx context.Context, o *cdpproxy.Observer) (session, lasting []cookie, err error) {
	var r struct {
		Cookies []struct {
			cookie
			Session bool `json:"session"`
		} `json:"cookies"`
	}
	err = o.Call(ctx, "", "Storage.getCookies", nil, &r)
	for _, c := range r.Cookies {
		kept := c.portable()
		if c.Session {
			kept.Expires = 0 // Chrome says -1
			session = append(session, kept)
		} else {
			lasting = append(lasting, kept)
		}
	}
	return session, lasting, err
}

// save writes cookies to a file; without any there is none.
func (j cookieJar) save(path, profile string, cookies []cookie) error {
	if len(cookies) == 0 {
		return remove(path, profile)
	}
	b, err := json.Marshal(cookies)
	if err == nil {
		err = os.MkdirAll(j.dir, 0o700)
	}
	if err == nil {
		err = durable.Replace(path, b)
	}
	if err != nil {
		return fmt.Errorf("session cookies of %s: %w", profile, err)
	}
	return nil
}

// portable names a host-only cookie by URL: given a domain, Chrome would send it
// to subdomains too.
func (c cookie) portable() cookie {
	if strings.HasPrefix(c.Domain, ".") {
		return c
	}
	scheme := "http"
	if c.Secure || c.SourceScheme == "Secure" {
		scheme = "https"
	}
	c.URL, c.Domain = scheme+"://"+c.Domain+c.Path, ""
	return c
}

// restore puts the saved cookies into a new browser, and forgets them: after a
// crash, old ones would be worse than none.
func (j cookieJar) restore(ctx context.Context, o *cdpproxy.Observer, profile string) error {
	var cookies []cookie
	for _, path := range []string{j.path(profile), j.lasting(profile)} {
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("session cookies of %s: %w", profile, err)
		}
		var some []cookie
		if err := json.Unmarshal(b, &some); err != nil {
			return errors.Join(fmt.Errorf("session cookies of %s: %w", profile, err), j.drop(profile))
		}
		cookies = append(cookies, some...)
	}
	if len(cookies) == 0 {
		return nil
	}
	if err := o.Call(ctx, "", "Storage.setCookies", map[string]any{"cookies": cookies}, nil); err != nil {
		return fmt.Errorf("session cookies of %s: %w", profile, err)
	}
	return j.drop(profile)
}

func (j cookieJar) drop(profile string) error {
	return errors.Join(remove(j.path(profile), profile), remove(j.lasting(profile), profile))
}

// noted is where the cookies of a browser are that a person may close.
func (j cookieJar) noted(profile string) string { return j.path(profile) + ".noted" }

// note writes down the session cookies of a browser that may end by itself.
func (j cookieJar) note(ctx context.Context, o *cdpproxy.Observer, profile string) error {
	return j.saveSession(ctx, o, profile, j.noted(profile))
}

// keepNoted keeps what was noted last: the browser ended in order, by itself.
func (j cookieJar) keepNoted(profile string) error {
	if err := os.Rename(j.noted(profile), j.path(profile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("session cookies of %s: %w", profile, err)
	}
	return nil
}

func (j cookieJar) dropNoted(profile string) error { return remove(j.noted(profile), profile) }

func remove(path, profile string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("session cookies of %s: %w", profile, err)
	}
	return nil
}
