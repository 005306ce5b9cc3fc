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
	"leasehold/internal/signed"
	"leasehold/lease"
)

// Jar carries session cookies from one session of a profile to the next. Chrome drops
// them when it closes, so without the jar each new session would find the account
// logged out. Its files are readable only by their owner, like the profile itself.
type Jar struct {
	dir string
	key *signed.Key
}

// NewJar returns the jar in a launcher's data directory. Its files are signed with the key.
func NewJar(dataDir string, key *signed.Key) Jar {
	return Jar{filepath.Join(dataDir, "session-cookies"), key}
}

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
	// Expires is in seconds since 1970; zero for a session cookie.
	Expires float64 `json:"expires,omitempty"`
}

func (j Jar) path(profile string) string {
	return filepath.Join(j.dir, lease.FileName(profile)+".json")
}

// lasting is the path of the file with a warm browser's persistent cookies, which
// Chrome keeps itself unless it crashes.
func (j Jar) lasting(profile string) string {
	return filepath.Join(j.dir, lease.FileName(profile)+".lasting.json")
}

// Keep saves the session cookies of a profile's browser that is about to close.
func (j Jar) Keep(ctx context.Context, browser Caller, profile string) error {
	// The file is removed once the browser has its cookies and has started. As long as the file
	// exists, no session had this browser, and the file must not be replaced by the fewer cookies
	// that the browser may have.
	if _, err := os.Stat(j.path(profile)); err == nil {
		return nil
	}
	return j.saveSession(ctx, browser, profile, j.path(profile), nil)
}

// KeepOfWarm is Keep for a browser that was warm. It replaces an existing file, since
// that has the cookies of the same browser from the end of its last session; unless lost tells, once
// the browser has shown its cookies, that it lost some since.
func (j Jar) KeepOfWarm(ctx context.Context, browser Caller, profile string, lost func() bool) error {
	return j.saveSession(ctx, browser, profile, j.path(profile), lost)
}

// saveSession saves a browser's session cookies in a file, unless lost tells that it lost some; nil: it did not.
func (j Jar) saveSession(ctx context.Context, browser Caller, profile, path string, lost func() bool) error {
	session, _, err := cookiesOf(ctx, browser)
	switch {
	case err != nil:
		return fmt.Errorf("session cookies of %s: %w", profile, err)
	case lost != nil && lost():
		return nil
	}
	return j.save(path, signed.Cookies, profile, session)
}

// KeepAll saves all cookies of a browser that stays open without a session, so that a
// crash does not lose any. Chrome writes the persistent ones to disk only every half
// minute.
func (j Jar) KeepAll(ctx context.Context, browser Caller, profile string) error {
	session, lasting, err := cookiesOf(ctx, browser)
	if err != nil {
		return fmt.Errorf("session cookies of %s: %w", profile, err)
	}
	return errors.Join(j.save(j.path(profile), signed.Cookies, profile, session), j.save(j.lasting(profile), signed.Lasting, profile, lasting))
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
func (j Jar) save(path string, kind signed.Kind, profile string, cookies []cookie) error {
	if len(cookies) == 0 {
		return remove(path, profile)
	}
	b, err := json.Marshal(cookies)
	if err == nil {
		err = os.MkdirAll(j.dir, 0o700)
	}
	if err == nil {
		err = durable.Replace(path, j.key.Sign(kind, profile, b))
	}
	if err != nil {
		return fmt.Errorf("session cookies of %s: %w", profile, err)
	}
	return nil
}

// read returns the cookies of a file; none if there is no file. The error is a
// signed.ErrNotAuthentic if this launcher has not written the file.
func (j Jar) read(path string, kind signed.Kind, profile string) ([]cookie, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil {
		b, err = j.key.Open(kind, profile, b)
	}
	var cookies []cookie
	if err == nil {
		if err = json.Unmarshal(b, &cookies); err != nil {
			err = fmt.Errorf("%w: %w", signed.ErrNotAuthentic, err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("session cookies of %s: %s: %w", profile, path, err)
	}
	return cookies, nil
}

// kept are the files that Restore reads, by kind.
func (j Jar) kept(profile string) map[signed.Kind]string {
	return map[signed.Kind]string{signed.Cookies: j.path(profile), signed.Lasting: j.lasting(profile)}
}

// Check returns a signed.ErrNotAuthentic if Restore would put cookies into the profile's
// next browser that this launcher has not saved.
func (j Jar) Check(profile string) error {
	for kind, path := range j.kept(profile) {
		if _, err := j.read(path, kind, profile); err != nil {
			return err
		}
	}
	return nil
}

// SetAside renames those files of a profile that this launcher has not written. Nothing is
// deleted: a person may want to look at them.
func (j Jar) SetAside(profile string) error {
	for kind, path := range j.kept(profile) {
		if _, err := j.read(path, kind, profile); errors.Is(err, signed.ErrNotAuthentic) {
			if err := os.Rename(path, path+".refused"); err != nil {
				return fmt.Errorf("session cookies of %s: %w", profile, err)
			}
		}
	}
	return nil
}

// portable names the host of a host-only cookie by a URL. If Chrome were given a domain
// instead, it would also send the cookie to subdomains.
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

// Restore puts the saved cookies into a new browser and removes the files: if that browser
// crashes, such old cookies would be worse than none.
func (j Jar) Restore(ctx context.Context, browser Caller, profile string) error {
	if err := j.Lend(ctx, browser, profile); err != nil {
		return err
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
	return j.saveSession(ctx, browser, profile, j.noted(profile), nil)
}

// KeepNoted makes Restore use the cookies that were noted last. It is called when the
// browser has ended in order.
func (j Jar) KeepNoted(profile string) error {
	return synced(os.Rename(j.noted(profile), j.path(profile)), j.dir, profile)
}

// DropNoted removes the cookies that were noted.
func (j Jar) DropNoted(profile string) error { return remove(j.noted(profile), profile) }

func remove(path, profile string) error {
	return synced(os.Remove(path), filepath.Dir(path), profile)
}

// synced puts on the disk what was done to the names in a directory, unless there was nothing to be
// done.
func synced(done error, dir, profile string) error {
	if errors.Is(done, fs.ErrNotExist) {
		return nil
	}
	if done == nil {
		done = durable.Sync(dir)
	}
	if done != nil {
		return fmt.Errorf("session cookies of %s: %w", profile, done)
	}
	return nil
}
