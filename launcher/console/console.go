// Package console is the page on which people see the profiles and decide on
// those in manual review. It is one static document that asks the REST surface
// of the same origin; the package knows nothing of the launcher.
//
// What it shows (URLs, titles, steps) comes from pages that may be hostile. The
// script sets text only. The Content-Security-Policy allows the page's own style and
// script, by their hashes, and nothing else: no resource of another origin, no HTML
// from strings.
package console

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
)

//go:embed page.html
var page string

//go:embed page.css
var style string

//go:embed page.js
var script string

// Handler serves the page, whatever the path. The surface in front of it decides who
// may see it. If that asks for an API token, the page is opened with ?token=TOKEN and
// shows it with each of its requests.
func Handler() http.Handler {
	body := strings.NewReplacer("{{style}}", style, "{{script}}", script).Replace(page)
	policy := strings.Join([]string{
		"default-src 'none'",
		"style-src " + hashOf(style),
		"script-src " + hashOf(script),
		"connect-src 'self'",
		"img-src blob: data:", // screenshots, once they are fetched; the empty icon
		"base-uri 'none'",
		"form-action 'none'",
		"frame-ancestors 'none'",
		"require-trusted-types-for 'script'",
		"trusted-types 'none'",
	}, "; ")
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("Content-Type", "text/html; charset=utf-8")
		h.Set("Content-Length", strconv.Itoa(len(body)))
		h.Set("Cache-Control", "no-store")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write([]byte(body)) // a client that left needs no page
	})
}

// hashOf returns the source expression of a Content-Security-Policy that allows exactly
// this inline text.
func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
