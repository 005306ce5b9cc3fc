package sessionfile

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"leasehold/internal/cookiedb"
	"leasehold/internal/durable"
	"leasehold/internal/signed"
)

// A browser whose network service is killed loses the cookies that it had not written to
// disk yet: those of the last half minute, and all session cookies. They are read before
// that process is stopped, and put back into the next one.

// stillCookies is the path of the file with the cookies of a session's browser that stands
// still.
func (d Dir) stillCookies(sessionID string) string {
	return filepath.Join(d.path, sessionID+".cookies")
}

// StillCookies are the cookies of a browser that stands still.
type StillCookies struct {
	// Jar is the result of Storage.getCookies.
	Jar json.RawMessage
	// Missing is why some cookies may not be in Jar; empty if all are.
	Missing string
	// Network is the process id of the network service that had them; zero if that is not known.
	Network int
}

// SaveStillCookies keeps the cookies of a browser that stands still, for a launcher that adopts
// it. The file is Jar, with the further members "network", and "missing" if Missing is not empty.
func (d Dir) SaveStillCookies(sessionID string, c StillCookies) error {
	members := map[string]any{}
	err := json.Unmarshal(c.Jar, &members)
	if c.Network != 0 {
		members["network"] = c.Network
	}
	if c.Missing != "" {
		members["missing"] = c.Missing
	}
	file, encodes := json.Marshal(members)
	if err = errors.Join(err, encodes); err == nil {
		err = durable.Replace(d.stillCookies(sessionID), d.key.Sign(signed.Still, sessionID, file))
	}
	if err != nil {
		return fmt.Errorf("cookies of a browser that stands still: %w", err)
	}
	return nil
}

// ReadStillCookies returns what SaveStillCookies has kept. The error is fs.ErrNotExist if there
// is nothing, and a signed.ErrNotAuthentic for a file that this launcher has not written.
func (d Dir) ReadStillCookies(sessionID string) (StillCookies, error) {
	b, err := os.ReadFile(d.stillCookies(sessionID))
	if err == nil {
		b, err = d.key.Open(signed.Still, sessionID, b)
	}
	if err != nil {
		return StillCookies{}, err
	}
	var file struct {
		Missing string `json:"missing"`
		Network int    `json:"network"`
	}
	err = json.Unmarshal(b, &file)
	return StillCookies{Jar: b, Missing: file.Missing, Network: file.Network}, err
}

// DropStillCookies removes them.
func (d Dir) DropStillCookies(sessionID string) error {
	if err := os.Remove(d.stillCookies(sessionID)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("cookies of a browser that stands still: %w", err)
	}
	return nil
}

type jarCookie struct {
	cookie
	Session bool `json:"session"`
}

// same tells whether two cookies are equal, apart from what Chrome uses only internally. Chrome
// stores times in microseconds.
func (c jarCookie) same(o jarCookie) bool {
	a, b := c.cookie, o.cookie
	near := c.Session == o.Session && (c.Session || math.Abs(a.Expires-b.Expires) < 1)
	a.Expires, b.Expires = 0, 0
	ja, errA := json.Marshal(a)
	jb, errB := json.Marshal(b)
	return near && errA == nil && errB == nil && string(ja) == string(jb)
}

// identity is the same for two cookies of which a browser can have only one.
func (c jarCookie) identity() string {
	partition := c.PartitionKey
	b, _ := json.Marshal([]any{c.Name, c.Domain, c.Path, partition}) // all of it is JSON
	return string(b)
}

func (c jarCookie) settable() cookie {
	if c.Session {
		c.Expires = 0
	}
	return c.portable()
}

func parseJar(raw json.RawMessage) (map[string]jarCookie, error) {
	var r struct {
		Cookies []jarCookie `json:"cookies"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return nil, fmt.Errorf("cookies: %w", err)
	}
	jar := map[string]jarCookie{}
	for _, c := range r.Cookies {
		jar[c.identity()] = c
	}
	return jar, nil
}

// Lasting returns the persistent cookies of a result of Storage.getCookies.
func Lasting(raw json.RawMessage) ([]cookiedb.Cookie, error) {
	jar, err := parseJar(raw)
	var lasting []cookiedb.Cookie
	for _, c := range jar {
		if !c.Session {
			lasting = append(lasting, cookiedb.Cookie{Domain: c.Domain, Name: c.Name, Path: c.Path, Value: c.Value, Expires: time.UnixMicro(int64(c.Expires * 1e6))})
		}
	}
	return lasting, err
}

// expired is a time at which a cookie is set to remove it, in seconds since 1970.
const expired = 1

// difference lists what has to be set so that a browser with the cookies of now has those of
// held: first what removes cookies, then what sets them.
func difference(held, now map[string]jarCookie) []cookie {
	var gone, set []cookie
	for id, c := range now {
		if _, kept := held[id]; !kept {
			c.Session, c.Value = false, ""
			c.Expires = expired
			gone = append(gone, c.portable())
		}
	}
	for id, c := range held {
		if has, ok := now[id]; !ok || !has.same(c) {
			set = append(set, c.settable())
		}
	}
	return append(gone, set...)
}

// PutBack makes a browser have exactly these cookies, the result of an earlier
// Storage.getCookies, and verifies that it has. changed is how many had to be set or removed.
// Cookies that have expired meanwhile do not count as a difference.
func PutBack(ctx context.Context, browser Caller, cookies json.RawMessage, now float64) (changed int, err error) {
	held, err := parseJar(cookies)
	if err != nil {
		return 0, err
	}
	for id, c := range held {
		if !c.Session && c.Expires <= now {
			delete(held, id)
		}
	}
	read := func() ([]cookie, error) {
		var raw json.RawMessage
		if err := browser.Call(ctx, "", "Storage.getCookies", nil, &raw); err != nil {
			return nil, err
		}
		has, err := parseJar(raw)
		return difference(held, has), err
	}
	todo, err := read()
	if err != nil || len(todo) == 0 {
		return 0, err
	}
	if err := browser.Call(ctx, "", "Storage.setCookies", map[string]any{"cookies": todo}, nil); err != nil {
		// A cookie that Chrome does not accept may keep it from setting the others.
		for _, c := range todo {
			_ = browser.Call(ctx, "", "Storage.setCookies", map[string]any{"cookies": []cookie{c}}, nil) // a missing cookie is noticed below
		}
	}
	left, err := read()
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%d of %d cookies could not be put back", len(left), len(todo))
	}
	return len(todo) - len(left), err
}
