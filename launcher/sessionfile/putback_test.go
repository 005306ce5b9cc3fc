package sessionfile

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"testing"

	"leasehold/internal/signed"
	"leasehold/internal/test/testkey"
)

// cookieBrowser keeps cookies as Chrome does, as far as PutBack sees it.
type cookieBrowser struct {
	cookies []map[string]any
	refuse  string // the name of a cookie that it does not take
	set     int    // calls that set any
}

func (b *cookieBrowser) Call(_ context.Context, _, method string, params, result any) error {
	switch method {
	case "Storage.getCookies":
		raw, err := json.Marshal(map[string]any{"cookies": b.cookies})
		if err != nil {
			return err
		}
		return json.Unmarshal(raw, result)
	case "Storage.setCookies":
		b.set++
		raw, err := json.Marshal(params)
		if err != nil {
			return err
		}
		var p struct {
			Cookies []cookie `json:"cookies"`
		}
		if err := json.Unmarshal(raw, &p); err != nil {
			return err
		}
		for _, c := range p.Cookies {
			if c.Name == b.refuse {
				return errors.New("Invalid cookie fields")
			}
		}
		for _, c := range p.Cookies {
			domain := c.Domain
			if c.URL != "" {
				domain = "shop.example"
			}
			b.cookies = slices.DeleteFunc(b.cookies, func(has map[string]any) bool { return has["name"] == c.Name && has["domain"] == domain })
			if c.Expires != expired {
				b.cookies = append(b.cookies, jarOf(c.Name, c.Value, domain, c.Expires))
			}
		}
	}
	return nil
}

// jarOf is a cookie as Storage.getCookies returns it. Without an end it is a session cookie.
func jarOf(name, value, domain string, expires float64) map[string]any {
	c := map[string]any{"name": name, "value": value, "domain": domain, "path": "/", "expires": expires, "size": len(name) + len(value), "session": expires == 0}
	if expires == 0 {
		c["expires"] = -1
	}
	return c
}

func TestCookiesArePutBack(t *testing.T) {
	const now, later = 1000.0, 9000.0
	held := []map[string]any{
		jarOf("sid", "s3", "shop.example", 0), jarOf("login", "l2", ".shop.example", later),
		jarOf("same", "x", ".shop.example", later), jarOf("over", "x", ".shop.example", now-1),
	}
	for name, tt := range map[string]struct {
		has     []map[string]any
		refuse  string
		changed int
		fails   bool
	}{
		"all are there":                      {held[:3], "", 0, false},
		"session cookies are gone":           {held[1:3], "", 1, false},
		"an older value is on disk":          {append(slices.Clone(held[:1:1]), jarOf("login", "l1", ".shop.example", later), held[2]), "", 1, false},
		"one that was removed is back":       {append(slices.Clone(held[:3:3]), jarOf("old", "x", ".shop.example", later)), "", 1, false},
		"nothing is there":                   {nil, "", 3, false},
		"one of them cannot be set":          {nil, "sid", 2, true},
		"another end":                        {append(slices.Clone(held[:1:1]), jarOf("login", "l2", ".shop.example", later-100), held[2]), "", 1, false},
		"the same end, but for microseconds": {append(slices.Clone(held[:1:1]), jarOf("login", "l2", ".shop.example", later-0.0001), held[2]), "", 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			raw, err := json.Marshal(map[string]any{"cookies": held})
			if err != nil {
				t.Fatal(err)
			}
			b := &cookieBrowser{cookies: slices.Clone(tt.has), refuse: tt.refuse}
			changed, err := PutBack(t.Context(), b, raw, now)
			if changed != tt.changed || (err != nil) != tt.fails || tt.changed == 0 && b.set > 0 {
				t.Errorf("%d changed in %d calls, %v; want %d", changed, b.set, err, tt.changed)
			}
			if want := 3; !tt.fails && len(b.cookies) != want {
				t.Errorf("it has %v", b.cookies)
			}
		})
	}
	if _, err := PutBack(t.Context(), &cookieBrowser{}, json.RawMessage(`[]`), now); err == nil {
		t.Error("what is no jar was taken for one")
	}
}

func TestStillCookiesAreTheLaunchersOwn(t *testing.T) {
	d := NewDir(t.TempDir(), testkey.Key)
	if _, err := d.Load(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.ReadStillCookies("s"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before any were kept: %v", err)
	}
	for want, kept := range map[string]StillCookies{
		`{"cookies":[]}`:                                   {},
		`{"cookies":[],"network":17}`:                      {Network: 17},
		`{"cookies":[],"missing":"a page did not answer"}`: {Missing: "a page did not answer"},
	} {
		kept.Jar = json.RawMessage(`{"cookies":[]}`)
		if err := d.SaveStillCookies("s", kept); err != nil {
			t.Fatal(err)
		}
		if got, err := d.ReadStillCookies("s"); err != nil || string(got.Jar) != want || got.Missing != kept.Missing || got.Network != kept.Network {
			t.Errorf("%s, %q, %d, %v", got.Jar, got.Missing, got.Network, err)
		}
	}
	if err := d.SaveStillCookies("s", StillCookies{Jar: json.RawMessage(`[]`)}); err == nil {
		t.Error("what is no jar was kept as one")
	}
	if info, err := os.Stat(d.stillCookies("s")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	if err := os.WriteFile(d.stillCookies("s"), []byte(`{"cookies":[{"name":"forged"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := d.ReadStillCookies("s"); !errors.Is(err, signed.ErrNotAuthentic) {
		t.Errorf("forged ones: %v", err)
	}
	if err := errors.Join(d.DropStillCookies("s"), d.DropStillCookies("s")); err != nil {
		t.Error(err)
	}
}
