package methods_test

import (
	"encoding/json"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"leasehold/cdpproxy/methods"
	"leasehold/internal/test/testchrome"
)

// spelling draws a URL that is written in an odd way.
func spelling(t *rapid.T) string {
	noise := rapid.SampledFrom([]string{"", "", "", "\t", "\n", "\r", " ", "\x00", "\x1f", "\v", "\u00a0", "\ufeff", "\u2028", "%66", "ﬁ", "ſ", "K"})
	var b strings.Builder
	for range rapid.IntRange(0, 3).Draw(t, "before") {
		b.WriteString(noise.Draw(t, "noise"))
	}
	for range rapid.IntRange(1, 2).Draw(t, "schemes") {
		name := rapid.SampledFrom([]string{"file", "FILE", "view-source", "filesystem", "chrome", "devtools", "about", "http", "blob", "data", "x+y", "", "1a"}).Draw(t, "scheme")
		for _, c := range name {
			b.WriteRune(c)
			if rapid.IntRange(0, 9).Draw(t, "noisy") == 0 {
				b.WriteString(noise.Draw(t, "noise"))
			}
		}
		b.WriteString(rapid.SampledFrom([]string{":", ":", ":", "", "::", "\t:", " :", `:\`}).Draw(t, "colon"))
	}
	b.WriteString(rapid.SampledFrom([]string{"", "//", "///", "/", `\\`}).Draw(t, "slashes"))
	b.WriteString(rapid.SampledFrom([]string{"", "etc/passwd", "blank", "settings", "a/b?c#d", "file:///x"}).Draw(t, "rest"))
	return b.String()
}

// TestURLsAreReadAsChromeReadsThem: the scheme that decides is the one that Chrome finds.
// No URL is let through whose scheme, as Chrome reads it, is another than one of those
// that are allowed.
func TestURLsAreReadAsChromeReadsThem(t *testing.T) {
	d := testchrome.StartDriver(t)
	_, page := d.Open("about:blank")
	var urls []string
	rapid.Check(t, func(t *rapid.T) {
		urls = append(urls, rapid.SliceOfN(rapid.Custom(spelling), 30, 30).Draw(t, "urls")...)
	})
	list, err := json.Marshal(urls)
	if err != nil {
		t.Fatal(err)
	}
	read := d.Eval(page, "JSON.stringify("+string(list)+".map(u => { try { return new URL(u).protocol } catch { return '' } }))")
	var protocols []string
	if err := json.Unmarshal([]byte(read), &protocols); err != nil || len(protocols) != len(urls) {
		t.Fatalf("%v: %.200s", err, read)
	}
	valid := 0
	for i, url := range urls {
		if protocols[i] == "" {
			continue
		}
		valid++
		switch allowed := methods.CheckURL(url) == nil; protocols[i] {
		case "http:", "data:", "https:":
			if !allowed {
				t.Errorf("%q is refused, and Chrome reads %s", url, protocols[i])
			}
		case "about:", "blob:", "view-source:": // what follows decides
		default:
			if allowed {
				t.Errorf("%q is allowed, and Chrome reads %s", url, protocols[i])
			}
		}
	}
	if valid < len(urls)/10 {
		t.Errorf("only %d of %d are URLs for Chrome", valid, len(urls))
	}
}
