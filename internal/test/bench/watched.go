package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
)

// What it costs a worker that somebody watches its session: the time of an evaluate while its
// page stands still and while it scrolls, beside the same page unwatched. In the table the
// unwatched page stands in the column of the port.

// watchedFor is how long a page is measured in one half of a round, and settling how long a
// page is left alone after its viewer came or went.
const (
	watchedFor = 2 * time.Second
	settling   = 500 * time.Millisecond
)

// scrolls is a page that scrolls for ever.
const scrolls = `<!doctype html><title>scrolls</title><body style="margin:0"><script>
for (let i = 0; i < 400; i++) document.write("<p style='background:hsl(" + i * 7 + " 60% 80%)'>" + i + " some text that scrolls by, as that of an article does");
let by = 4;
(function next() {
  scrollBy(0, by);
  if (scrollY <= 0 || scrollY + innerHeight >= document.documentElement.scrollHeight) by = -by;
  requestAnimationFrame(next);
})();
</script>`

const stands = `<!doctype html><title>stands</title><h1>It stands still</h1>`

func serveScrolling(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	page := stands
	if strings.HasSuffix(r.URL.Path, "/scrolls") {
		page = scrolls
	}
	_, _ = io.WriteString(w, page)
}

// watched takes those measures.
func (r *rig) watched(o options) (results []result, err error) {
	pages := []struct{ name, path string }{{"of a page that stands still", "/stands"}, {"of a page that scrolls", "/scrolls"}}
	if !slices.ContainsFunc(pages, func(p struct{ name, path string }) bool { return o.wants("watched " + p.name) }) {
		return nil, nil
	}
	base, web, err := serve(serveScrolling)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, web.Close()) }()
	view, err := r.viewURL()
	if err != nil {
		return nil, err
	}
	s := &r.launcher
	for _, p := range pages {
		if !o.wants("watched " + p.name) {
			continue
		}
		if _, err := s.client.call(s.session, "Page.navigate", `{"url":"`+strings.TrimSuffix(base, "/")+p.path+`"}`); err != nil {
			return nil, err
		}
		if _, err := s.client.call(s.session, "Page.bringToFront", `{}`); err != nil {
			return nil, err
		}
		of, err := r.watchedPage(o, view)
		if err != nil {
			return nil, fmt.Errorf("watched %s: %w", p.name, err)
		}
		results = append(results,
			of.evaluate.result("evaluate p50, watched "+p.name, "us", 1.05),
			of.cpu.result("Chrome's CPU, watched "+p.name, "%", 0),
			result{Name: "pictures, watched " + p.name, Unit: "/s", Value: median(of.pictures)})
	}
	return results, nil
}

// watchedCosts are what rounds on one page gave.
type watchedCosts struct {
	evaluate, cpu taken
	pictures      []float64 // a second
}

func (r *rig) watchedPage(o options, view string) (*watchedCosts, error) {
	of := &watchedCosts{}
	for round := range o.rounds + 1 {
		var took, cpu [2]float64
		for k := range 2 {
			with := (k + round) % 2
			var v *viewer
			if with == 1 {
				var err error
				if v, err = watch(view); err != nil {
					return nil, err
				}
			}
			time.Sleep(settling)
			before, err := treeCPU(r.sidecar.profileDir(profile))
			if err != nil {
				return nil, err
			}
			begun := time.Now()
			if v != nil {
				v.pictures.Store(0)
			}
			var samples []float64
			for time.Since(begun) < watchedFor {
				p50, err := callsP50("", "Runtime.evaluate", `{"expression":"1+1"}`)(&r.launcher)
				if err != nil {
					return nil, err
				}
				samples = append(samples, p50)
				time.Sleep(20 * time.Millisecond) // so that the page can draw on two cores
			}
			after, err := treeCPU(r.sidecar.profileDir(profile))
			if err != nil {
				return nil, err
			}
			seconds := time.Since(begun).Seconds()
			took[with], cpu[with] = median(samples), (after-before)/10/seconds
			if v == nil {
				continue
			}
			if round > 0 {
				of.pictures = append(of.pictures, float64(v.pictures.Load())/seconds)
			}
			if err := v.leave(); err != nil {
				return nil, err
			}
		}
		if round > 0 { // the first only warms up
			of.evaluate.add(took[0], took[1], 0)
			of.cpu.add(cpu[0], cpu[1], 0)
		}
	}
	return of, nil
}

// viewURL is where the session of the rig is watched.
func (r *rig) viewURL() (string, error) {
	client := http.Client{Timeout: answerTimeout}
	resp, err := client.Get(r.sidecar.url + "/v1/sessions")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var list struct {
		Items []struct {
			SessionID string `json:"session_id"`
			ProfileID string `json:"profile_id"`
		} `json:"items"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		return "", err
	}
	for _, s := range list.Items {
		if s.ProfileID == profile {
			return "ws" + strings.TrimPrefix(r.sidecar.url, "http") + "/v1/sessions/" + s.SessionID + "/view", nil
		}
	}
	return "", fmt.Errorf("no session on %s is listed", profile)
}

// viewer watches a session, and takes every picture at once.
type viewer struct {
	conn     net.Conn
	pictures atomic.Int64
	done     chan struct{}
}

func watch(url string) (*viewer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), answerTimeout)
	defer cancel()
	conn, _, _, err := ws.Dial(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("watching: %w", err)
	}
	v := &viewer{conn: conn, done: make(chan struct{})}
	go func() {
		defer close(v.done)
		for {
			body, op, err := wsutil.ReadServerData(conn)
			if err != nil {
				return
			}
			if op != ws.OpBinary {
				continue
			}
			v.pictures.Add(1)
			var head struct {
				Sequence uint64 `json:"sequence"`
			}
			n := binary.BigEndian.Uint16(body)
			if json.NewDecoder(bytes.NewReader(body[2:2+n])).Decode(&head) != nil {
				return
			}
			if wsutil.WriteClientText(conn, fmt.Appendf(nil, `{"type":"ack","sequence":%d}`, head.Sequence)) != nil {
				return
			}
		}
	}()
	return v, nil
}

func (v *viewer) leave() error {
	err := v.conn.Close()
	<-v.done
	return err
}
