package evidence_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"leasehold/evidence"
)

// secret is what nobody but the account's owner may read.
const secret = "Pl4nt3d"

const wallet = `{"cookies":[
	{"name":"sid","value":"` + secret + `","domain":"shop.example","path":"/","expires":1},
	{"name":"theme","value":"dark","domain":"shop.example","path":"/"},
	{"name":"sid","value":"other","domain":".ads.example","path":"/","partitionKey":{"topLevelSite":"https://shop.example"}}]}`

var digestSalt = bytes.Repeat([]byte("s"), 32)

func digestsOf(t *testing.T, salt []byte, change func(*evidence.Digests)) []byte {
	t.Helper()
	d, err := evidence.NewDigests(salt)
	if err != nil {
		t.Fatal(err)
	}
	d.SetCookies(json.RawMessage(wallet), nil)
	if change != nil {
		change(d)
	}
	content, err := d.Part()
	if err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{secret, "sid", "theme", "dark"} {
		if strings.Contains(string(content), gone) {
			t.Errorf("the part has %q:\n%s", gone, content)
		}
	}
	return content
}

func TestChanged(t *testing.T) {
	before := digestsOf(t, digestSalt, nil)
	cookies := func(old, new string) func(*evidence.Digests) {
		return func(d *evidence.Digests) { d.SetCookies(json.RawMessage(strings.ReplaceAll(wallet, old, new)), nil) }
	}
	for _, c := range []struct {
		name   string
		change func(*evidence.Digests)
		want   string
		says   string
	}{
		{"nothing", nil, "no", "2 cookie domains are the same"},
		{"the order, and when one ends", func(d *evidence.Digests) {
			d.SetCookies(json.RawMessage(strings.Replace(wallet, `"expires":1`, `"expires":2`, 1)), nil)
		}, "no", ""},
		{"a value", cookies(secret, "new"), "yes", "cookies of shop.example"},
		{"a path", cookies(`"path":"/"`, `"path":"/x"`), "yes", "cookies of .ads.example, cookies of shop.example"},
		{"a partition", cookies("https://shop", "https://other"), "yes", "cookies of .ads.example"},
		{"all cookies gone", func(d *evidence.Digests) { d.SetCookies(json.RawMessage(`{"cookies":[]}`), nil) }, "yes", "cookies of .ads"},
		{"a new domain", cookies(".ads.example", "new.example"), "yes", "cookies of new.example"},
		{"cookies not to be had", func(d *evidence.Digests) { d.SetCookies(nil, errors.New("no answer")) }, "unknown", "cookies: no answer"},
		{"cookies that are none", func(d *evidence.Digests) { d.SetCookies(json.RawMessage(`{`), nil) }, "unknown", "Storage.getCookies"},
	} {
		t.Run(c.name, func(t *testing.T) {
			after := digestsOf(t, digestSalt, c.change)
			for _, order := range [][2][]byte{{before, after}, {after, before}} {
				if answer, how := evidence.Changed(order[0], order[1]); answer != c.want || !strings.Contains(how, c.says) {
					t.Errorf("%s, %s; want %s, %s", answer, how, c.want, c.says)
				}
			}
		})
	}
	other := digestsOf(t, bytes.Repeat([]byte("x"), 32), nil)
	for _, after := range [][]byte{nil, []byte("{"), []byte("{}"), other} {
		if answer, how := evidence.Changed(before, after); answer != evidence.ChangedUnknown || how == "" {
			t.Errorf("%.20s: %s, %s", after, answer, how)
		}
	}
	if _, err := evidence.NewDigests(digestSalt[:15]); err == nil {
		t.Error("a short salt was taken")
	}
}
