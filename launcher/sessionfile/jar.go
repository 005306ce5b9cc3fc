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

// Jar carries session cookies from one session of a profile to the next. Chrome drops
// them when it closes, so without the jar each new session would find the account
// logged out. Its files are readable only by their owner, like the profile itself.
type Jar struct{ dir string }

// NewJar returns the jar in a launcher's data directory.
func NewJar(dataDir string) Jar { return Jar{filepath.Join(dataDir, "session-cookies")} }

// Caller makes CDP calls to a browser: a cdpproxy.Observer.
type Caller interface {
	Call(ctx context.Context, session, method string, params, result any) error
}

// cookie has the members that Storage.getCookies returns and Storage.setCookies takes.
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
	// Expires is in seconds since 1970. A session cookie has zero.
	Expires float64 `json:"expires,omitempty"`
}

func (j Jar) path(profile string) string {
	return filepath.Join(j.dir, lease.Key(profile)+".json")
}

// lasting is the path of the file with a warm browser's persistent cookies, which
// Chrome keeps itself unless it crashes.
func (j Jar) lasting(profile string) string {
	return filepath.Join(j.dir, lease.Key(profile)+".lasting.json")
}

// Keep saves the session cookies of a profile's browser that is about to close.
func (j Jar) Keep(ctx context.Context, browser Caller, profile string) error {
	// Restore removes the file when it is done. As long as the file exists, its cookies
	// were not put into this browser, and must not be replaced by the fewer that it
	// has.
	if _, err := os.Stat(j.path(profile)); err == nil {
		return nil
	}
	return j.KeepOfWarm(ctx, browser, profile)
}

// KeepOfWarm is Keep for a browser that was warm. It replaces an existing file, since
// that has the cookies of the same browser from the end of its last session.
func (j Jar) KeepOfWarm(ctx context.Context, browser Caller, profile string) error {
	return j.saveSession(ctx, browser, profile, j.path(profile))
}

// saveSession saves a browser's session cookies in a file.
func (j Jar) saveSession(ctx context.Context, browser Caller, profile, path string) error {
	session, _, err := cookiesOf(ctx, browser)
	if err != nil {
		return fmt.Errorf("session cookies of %s: %w", profile, err)
	}
	return j.save(path, profile, session)
}

// KeepAll saves all cookies of a browser that stays open without a session, so that a
// crash does not lose any. Chrome writes the persistent ones to disk only every half
// minute.
func (j Jar) KeepAll(ctx context.Context, browser Caller, profile string) error {
	session, lasting, err := cookiesOf(ctx, browser)
	if err != nil {
		return fmt.Errorf("session cookies of %s: %w", profile, err)
	}
	return errors.Join(j.save(j.path(profile), profile, session), j.save(j.lasting(profile), profile, lasting))
}

// ClosedInOrder says that a browser whose cookies were kept by KeepAll closed cleanly,
// so that Chrome itself has written the persistent ones.
func (j Jar) ClosedInOrder(profile string) error {
	return remove(j.lasting(profile), profile)
}

// cookiesOf reads the cookies of the browser's default context: the session cookies,
// which Chrome drops when it closes, and the persistent ones.
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
			kept.Expires = 0 // Chrome gives -1
			session = append(session, kept)
		} else {
			lasting = append(lasting, kept)
		}
	}
	return session, lasting, err
}

// save writes cookies to a file. If there are none it removes the file.
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

// portable names the host of a host-only cookie by a URL. Given a domain, Chrome would
// send it to subdomains, too.
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

// Restore puts the saved cookies into a new browser and removes the files. If that
// browser crashes, cookies that old would be worse than none.
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

// Drop removes the saved cookies of a profile.
func (j Jar) Drop(profile string) error {
	return errors.Join(remove(j.path(profile), profile), remove(j.lasting(profile), profile))
}

// noted is the path of the file with the cookies of a browser that a person may close
// at any time.
func (j Jar) noted(profile string) string { return j.path(profile) + ".noted" }

// Note saves the session cookies of a browser that may end at any time. Restore does
// not use them before KeepNoted.
func (j Jar) Note(ctx context.Context, browser Caller, profile string) error {
	return j.saveSession(ctx, browser, profile, j.noted(profile))
}

// KeepNoted makes Restore use the cookies that were noted last. It is called when the
// browser has ended in order.
func (j Jar) KeepNoted(profile string) error {
	if err := os.Rename(j.noted(profile), j.path(profile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("session cookies of %s: %w", profile, err)
	}
	return nil
}

// DropNoted removes the cookies that were noted.
func (j Jar) DropNoted(profile string) error { return remove(j.noted(profile), profile) }

func remove(path, profile string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("session cookies of %s: %w", profile, err)
	}
	return nil
}

// Copy gives a profile the session cookies that are saved for another.
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
