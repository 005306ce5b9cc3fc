package chaos

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"

	"leasehold/lease"
)

// witness is the web site that the browsers work on. It records each request with the
// token under which its page was opened. It also takes the reports of the workers.
type witness struct {
	URL     string
	history *History
	server  *http.Server
	done    chan struct{}

	mu    sync.Mutex
	names map[string]string // of the hosts, by address
}

// knows tells from which address the browsers of a host come.
func (w *witness) knows(ip, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names[ip] = name
}

// host is the name of the host that a request comes from; empty: it is none that is known.
func (w *witness) host(r *http.Request) string {
	ip, _, _ := net.SplitHostPort(r.RemoteAddr) // of the server's own making
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.names[ip]
}

func startWitness(ip string, h *History) (*witness, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		return nil, fmt.Errorf("witness: %w", err)
	}
	w := &witness{URL: "http://" + l.Addr().String(), history: h, done: make(chan struct{}), names: map[string]string{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /page", w.page)
	mux.HandleFunc("/hit", w.hit)
	mux.HandleFunc("POST /report", w.report)
	w.server = &http.Server{Handler: mux}
	go func() {
		defer close(w.done)
		_ = w.server.Serve(l) // it ends with ErrServerClosed
	}()
	return w, nil
}

func (w *witness) stop() error {
	err := w.server.Close()
	<-w.done
	return err
}

// page serves a page that keeps sending requests as long as its browser lives.
func (w *witness) page(rw http.ResponseWriter, r *http.Request) {
	w.seen(r)
	rw.Header().Set("Content-Type", "text/html")
	fmt.Fprintf(rw, `<!doctype html><title>work</title><p>at work</p>
<script>setInterval(() => fetch('/hit?%s&by=page').catch(() => {}), 250)</script>`, r.URL.RawQuery)
}

func (w *witness) hit(rw http.ResponseWriter, r *http.Request) {
	w.seen(r)
	rw.WriteHeader(http.StatusNoContent)
}

func (w *witness) seen(r *http.Request) {
	q := r.URL.Query()
	token, _ := strconv.ParseUint(q.Get("token"), 10, 64) // zero is checked, too
	e := Entry{
		Kind: Requested, Profile: q.Get("profile"), Token: lease.Token(token), Session: q.Get("session"),
		ViaCDP: q.Get("by") == "cdp", Home: w.host(r), Text: q.Get("n"),
	}
	if q.Has("reader") {
		e.Kind, e.Text = ReaderRequest, r.Method
	}
	w.history.Add(e)
}

func (w *witness) report(rw http.ResponseWriter, r *http.Request) {
	var e Entry
	if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
		http.Error(rw, err.Error(), http.StatusBadRequest)
		return
	}
	w.history.Add(e)
}
