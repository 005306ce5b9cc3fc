package sessionfile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"leasehold/internal/durable"
	"leasehold/lease"
)

// Jar carries session cookies from one session of a profile to the next. Chrome
// drops them when it closes, so without the jar each new session would find the
// account logged out. The files are as private as the profile they come from.
type Jar struct{ dir string }

// NewJar returns the jar in a launcher's data directory.
func NewJar(dataDir string) Jar { return Jar{filepath.Join(dataDir, "session-cookies")} }

// Caller makes CDP calls to a browser: a cdpproxy.Observer.
type Caller interface {
	Call(ctx context.Context, session, method string, params, result any) error
}

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

func (j Jar) path(profile string) string {
	return filepath.Join(j.dir, lease.Key(profile)+".json")
}

// lasting is the file with the cookies of a warm browser that Chrome itself keeps.
func (j Jar) lasting(profile string) string {
	return filepath.Join(j.dir, lease.Key(profile)+".lasting.json")
}

// Keep saves the session cookies of a browser's own context, which is about to close.
func (j Jar) Keep(ctx context.Context, browser Caller, profile string) error {
	// Restore removes the file when it is done. While it is there, its cookies are
	// not in this browser yet, and must not be replaced by less.
	if _, err := os.Stat(j.path(profile)); err == nil {
		return nil
	}
	return j.KeepOfWarm(ctx, browser, profile)
}

// KeepOfWarm is Keep for a browser that was warm: the file that is there has its own
// cookies, as they were when its last session ended.
func (j Jar) KeepOfWarm(ctx context.Context, browser Caller, profile string) error {
	return j.saveSession(ctx, browser, profile, j.path(profile))
}

// saveSession saves the session cookies of a browser in a file.
func (j Jar) saveSession(ctx context.Context, browser Caller, profile, path string) error {
	session, _, err := cookiesOf(ctx, browser)
	if err != nil {
		return fmt.Errorf("session cookies of %s: %w", profile, err)
	}
	return j.save(path, profile, session)
}

// KeepAll saves all cookies of a browser that stays open without a session, so that
// none is lost should it crash: Chrome writes its own only every half minute.
func (j Jar) KeepAll(ctx context.Context, browser Caller, profile string) error {
	session, lasting, err := cookiesOf(ctx, browser)
	if err != nil {
		return fmt.Errorf("session cookies of %s: %w", profile, err)
	}
	return errors.Join(j.save(j.path(profile), profile, session), j.save(j.lasting(profile), profile, lasting))
}

// ClosedInOrder says that a browser whose cookies were kept by KeepAll closed cleanly,
// so that Chrome itself has written the lasting ones.
func (j Jar) ClosedInOrder(profile string) error {
	return remove(j.lasting(profile), profile)
}

// cookiesOf reads the cookies of the browser's own context: those that Chrome drops
// when it closes, and the others.
func cookiesOf(ctx context.Context, browser Caller) (session, lasting []cookie, err error) {
	var r struct {
		Cookies []struct {
			cookie
			Session bool `json:"session"`
		} `json:"cookies"`
	}
	err = browser.Call(ctx, "", "Storage.getCookies", nil, &r)
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
func (j Jar) save(path, profile string, cookies []cookie) error {
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

// Restore puts the saved cookies into a new browser, and forgets them: after a crash,
// old ones would be worse than none.
func (j Jar) Restore(ctx context.Context, browser Caller, profile string) error {
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
			return errors.Join(fmt.Errorf("session cookies of %s: %w", profile, err), j.Drop(profile))
		}
		cookies = append(cookies, some...)
	}
	if len(cookies) == 0 {
		return nil
	}
	if err := browser.Call(ctx, "", "Storage.setCookies", map[string]any{"cookies": cookies}, nil); err != nil {
		return fmt.Errorf("session cookies of %s: %w", profile, err)
	}
	return j.Drop(profile)
}

// Drop forgets the saved cookies of a profile.
func (j Jar) Drop(profile string) error {
	return errors.Join(remove(j.path(profile), profile), remove(j.lasting(profile), profile))
}

// noted is the file with the cookies of a browser that a person may close at any time.
func (j Jar) noted(profile string) string { return j.path(profile) + ".noted" }

// Note saves the session cookies of a browser that may end by itself. They count only
// after KeepNoted.
func (j Jar) Note(ctx context.Context, browser Caller, profile string) error {
	return j.saveSession(ctx, browser, profile, j.noted(profile))
}

// KeepNoted keeps the cookies that were noted last: the browser ended in order, by
// itself.
func (j Jar) KeepNoted(profile string) error {
	if err := os.Rename(j.noted(profile), j.path(profile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("session cookies of %s: %w", profile, err)
	}
	return nil
}

// DropNoted forgets the cookies that were noted.
func (j Jar) DropNoted(profile string) error { return remove(j.noted(profile), profile) }

func remove(path, profile string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("session cookies of %s: %w", profile, err)
	}
	return nil
}

// Copy gives one profile the session cookies that another keeps.
func (j Jar) Copy(from, to string) error {
	b, err := os.ReadFile(j.path(from))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = durable.Replace(j.path(to), b)
	}
	if err != nil {
		return fmt.Errorf("session cookies of %s: %w", from, err)
	}
	return nil
}
