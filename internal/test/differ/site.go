package differ

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
)

// Site is the web site of the scripts, on two origins. Its pages are the files of
// testdata/site; what has to be made by a program is in the table below.
type Site struct {
	// URL and Other are its two origins, of two sites, without a slash at the end.
	URL, Other string
	server     *httptest.Server
}

// NewSite serves the pages of a directory.
func NewSite(dir string) *Site {
	s := &Site{}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		b, err := os.ReadFile(filepath.Join(dir, filepath.Base(r.URL.Path)))
		if err != nil {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", map[string]string{
			".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".json": "application/json",
		}[filepath.Ext(r.URL.Path)])
		_, _ = io.WriteString(w, strings.NewReplacer("$other", s.Other, "$site", s.URL).Replace(string(b)))
	})
	mux.HandleFunc("/redirect", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusFound)
	})
	mux.HandleFunc("/status", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.WriteHeader(404)
		_, _ = io.WriteString(w, "<title>missing</title>")
	})
	mux.HandleFunc("/secret", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		if user, _, ok := r.BasicAuth(); !ok || user != "user" {
			w.Header().Set("WWW-Authenticate", `Basic realm="scripts"`)
			w.WriteHeader(401)
			return
		}
		_, _ = io.WriteString(w, "<title>let in</title>")
	})
	mux.HandleFunc("/file", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Disposition", `attachment; filename="file.bin"`)
		_, _ = io.WriteString(w, "0123456789")
	})
	mux.HandleFunc("/endless", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Disposition", `attachment; filename="endless.bin"`)
		w.Header().Set("Content-Length", "1000000")
		_, _ = io.WriteString(w, "0123456789")
		_ = http.NewResponseController(w).Flush() // nothing to do about a client that is gone
		<-r.Context().Done()
	})
	mux.HandleFunc("/never", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	mux.HandleFunc("/cookie", func(w http.ResponseWriter, r *http.Request) {
		http.SetCookie(w, &http.Cookie{Name: "a", Value: "1", Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode})
		w.Header().Set("Content-Type", "text/html")
		_, _ = fmt.Fprintf(w, "<title>cookies</title>%s", r.Header.Get("Cookie"))
	})
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body) // a body that ends early is echoed as far as it came
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Access-Control-Allow-Origin", "*")
		_, _ = fmt.Fprintf(w, "%s %s %s", r.Method, r.Header.Get("X-Script"), b)
	})
	mux.HandleFunc("/big", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, strings.Repeat("0123456789", 20_000))
	})
	mux.HandleFunc("/events", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "event: x\nid: 1\ndata: one\n\n")
		_ = http.NewResponseController(w).Flush() // nothing to do about a client that is gone
		<-r.Context().Done()
	})
	s.server = httptest.NewServer(mux)
	s.URL = s.server.URL
	s.Other = strings.Replace(s.URL, "127.0.0.1", "localhost", 1)
	return s
}

// Close ends the site.
func (s *Site) Close() {
	s.server.CloseClientConnections() // browsers keep some
	s.server.Close()
}
