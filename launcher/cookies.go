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
}

func (j cookieJar) path(profile string) string {
	return filepath.Join(j.dir, lease.Key(profile)+".json")
}

// export saves the session cookies of the browser's own context.
func (j cookieJar) export(ctx context.Context, o *cdpproxy.Observer, profile string) error {
	// restore removes the file when it is done: while it is there, its cookies
	// are not in this browser yet.
	if _, err := os.Stat(j.path(profile)); err == nil {
		return nil
	}
	return j.save(ctx, o, profile, j.path(profile))
}

// save writes the session cookies into a file; none where there are none.
func (j cookieJar) save(ctx context.Context, o *cdpproxy.Observer, profile, path string) error {
	var r struct {
		Cookies []struct {
			cookie
			Session bool `json:"session"`
		} `json:"cookies"`
	}
	if err := o.Call(ctx, "", "Storage.getCookies", nil, &r); err != nil {
		return fmt.Errorf("session cookies of %s: %w", profile, err)
	}
	kept := []cookie{}
	for _, c := range r.Cookies {
		if c.Session {
			kept = append(kept, c.portable())
		}
	}
	if len(kept) == 0 {
		return remove(path, profile)
	}
	b, err := json.Marshal(kept)
	if err != nil {
		return fmt.Errorf("session cookies of %s: %w", profile, err)
	}
	if err := os.MkdirAll(j.dir, 0o700); err != nil {
		return fmt.Errorf("session cookies of %s: %w", profile, err)
	}
	if err := durable.Replace(path, b); err != nil {
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
	b, err := os.ReadFile(j.path(profile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("session cookies of %s: %w", profile, err)
	}
	var cookies []cookie
	if err := json.Unmarshal(b, &cookies); err != nil {
		return errors.Join(fmt.Errorf("session cookies of %s: %w", profile, err), j.drop(profile))
	}
	if err := o.Call(ctx, "", "Storage.setCookies", map[string]any{"cookies": cookies}, nil); err != nil {
		return fmt.Errorf("session cookies of %s: %w", profile, err)
	}
	return j.drop(profile)
}

func (j cookieJar) drop(profile string) error { return remove(j.path(profile), profile) }

// noted is where the cookies of a browser are that a person may close.
func (j cookieJar) noted(profile string) string { return j.path(profile) + ".noted" }

// note writes down the session cookies of a browser that may end by itself.
func (j cookieJar) note(ctx context.Context, o *cdpproxy.Observer, profile string) error {
	return j.save(ctx, o, profile, j.noted(profile))
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
