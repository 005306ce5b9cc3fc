package cookiedb

import (
	"os"
	"slices"
	"testing"
	"time"
)

// TestReadsWhatChromeWrote: the file is that of Chromium 156, with a persistent cookie and a
// session cookie.
func TestReadsWhatChromeWrote(t *testing.T) {
	file, err := os.ReadFile("testdata/Cookies")
	if err != nil {
		t.Fatal(err)
	}
	want := []Cookie{{
		Domain: "127.0.0.1", Name: "p", Path: "/", Value: "hello",
		Expires: time.UnixMicro(1795737415360703), Updated: time.UnixMicro(1795651015360791),
	}}
	if got, err := Read(file); err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v %v, want %+v", got, err, want)
	}
}

func TestWhichCookiesAreLost(t *testing.T) {
	ended := time.Unix(1_800_000_000, 0)
	at, later := ended.Add(-time.Second), ended.Add(time.Hour)
	had := Cookie{Domain: ".shop.example", Name: "sid", Path: "/", Value: "new", Expires: later}
	with := func(change func(*Cookie)) []Cookie {
		c := had
		c.Updated = ended.Add(-time.Minute)
		change(&c)
		return []Cookie{c}
	}
	for name, tt := range map[string]struct {
		had  []Cookie
		left []Cookie
		lost bool
	}{
		"it is there":                             {left: with(func(*Cookie) {})},
		"it is not there":                         {lost: true},
		"another path":                            {left: with(func(c *Cookie) { c.Path = "/x" }), lost: true},
		"another domain":                          {left: with(func(c *Cookie) { c.Domain = "shop.example" }), lost: true},
		"an older value":                          {left: with(func(c *Cookie) { c.Value = "old" }), lost: true},
		"set again after it was read":             {left: with(func(c *Cookie) { c.Value, c.Updated = "newer", at.Add(time.Millisecond) })},
		"of two partitions":                       {left: append(with(func(c *Cookie) { c.Value = "other" }), with(func(*Cookie) {})...)},
		"its time is over":                        {had: []Cookie{{Name: "sid", Expires: ended.Add(time.Second)}}},
		"under another key":                       {left: with(func(c *Cookie) { c.Value, c.Unread = "", true })},
		"under another key, with an earlier time": {left: with(func(c *Cookie) { c.Unread, c.Expires = true, later.Add(-time.Minute) }), lost: true},
	} {
		if tt.had == nil {
			tt.had = []Cookie{had}
		}
		if lost, why := Lost(tt.had, tt.left, at, ended); (lost != nil) != tt.lost {
			t.Errorf("%s: %v %s, want lost: %t", name, lost, why, tt.lost)
		}
	}
}

func FuzzRead(f *testing.F) {
	file, err := os.ReadFile("testdata/Cookies")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(file)
	f.Add(file[:len(file)/2])
	f.Fuzz(func(_ *testing.T, file []byte) { _, _ = Read(file) }) // it ends, and does not panic
}
