package view

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"leasehold/cdpproxy"
	"leasehold/evidence/capture"
	"leasehold/launcher/principal"
)

func TestTheTabThatTheWorkerUsedLast(t *testing.T) {
	pages := []capture.Page{{TargetID: "B"}, {TargetID: "A"}} // B has the latest event
	to := func(targets ...string) (sent []cdpproxy.Command) {
		for _, target := range targets {
			sent = append(sent, cdpproxy.Command{Target: target})
		}
		return sent
	}
	for _, tt := range []struct {
		name   string
		before string
		opened []string
		sent   []cdpproxy.Command
		pages  []capture.Page
		want   string
	}{
		{"nothing was done yet", "", nil, nil, pages, "B"},
		{"no page is open", "A", nil, to("A"), nil, ""},
		{"it stays", "A", nil, to("", "a frame's"), pages, "A"},
		{"of its last command", "A", nil, to("A", "B", ""), pages, "B"},
		{"it was closed", "C", nil, nil, pages, "B"},
		{"a new one", "A", []string{"C", "B"}, to("A"), pages, "B"},
	} {
		if got := usedTab(tt.before, tt.opened, tt.sent, tt.pages); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestActionsAreToldOnceAndWithinBounds(t *testing.T) {
	var l actionLog
	at := time.Now()
	if l.add([]cdpproxy.Command{{At: at, Method: "DOM.getDocument"}, {At: at, Method: "Page.enable"}}) {
		t.Error("commands that only look are shown")
	}
	l.add([]cdpproxy.Command{{At: at, Method: "Input.dispatchKeyEvent", Target: "A"}, {At: at, Method: "Input.dispatchKeyEvent", Target: "A"}, {At: at, Method: "Input.newInEveryChrome", Target: "A"}})
	all, missed := l.after(0, 0)
	if len(all) != 2 || missed != 0 || all[0].Times != 2 || all[1].Does != "input" {
		t.Errorf("%+v, %d missed", all, missed)
	}
	seen := l.changes
	l.add([]cdpproxy.Command{{At: at, Method: "Input.newInEveryChrome", Target: "A"}})
	if again, _ := l.after(seen, all[1].Number); len(again) != 1 || again[0].Number != all[1].Number || again[0].Times != 2 {
		t.Errorf("what was repeated: %+v", again)
	}
	for range maxActions {
		l.add([]cdpproxy.Command{{At: at, Method: "Page.navigate", Target: "A"}, {At: at, Method: "Page.reload", Target: "A"}})
	}
	if rest, missed := l.after(seen, all[1].Number); len(rest) != maxActions || missed != maxActions {
		t.Errorf("%d, %d missed", len(rest), missed)
	}
}

func TestAPictureIsWithinBounds(t *testing.T) {
	for _, tt := range []struct {
		name  string
		sizes []size
		want  castParams
	}{
		{"a viewer that says nothing", []size{{}}, castParams{"jpeg", 60, 1280, 800}},
		{"the largest of two, rounded up", []size{{700, 300, 30}, {500, 650, 0}}, castParams{"jpeg", 60, 800, 800}},
		{"4 K", []size{{3840, 2160, 100}}, castParams{"jpeg", 80, 1920, 1200}},
		{"next to nothing", []size{{1, 1, 1}}, castParams{"jpeg", 20, 160, 160}},
	} {
		if got := paramsFor(tt.sizes...); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// FuzzMessagesFromViewers: whatever a viewer sends is done or answered, and never more than the
// bounds waits for it.
func FuzzMessagesFromViewers(f *testing.F) {
	for _, seed := range []string{
		`{"type":"ack","sequence":1}`, `{"type":"show","target":"A"}`, `{"type":"size","width":1e300,"height":-5,"dpr":1e9,"quality":-1}`, `{"type":"pause"}`, `{"type":"resume"}`,
		`{"type":"mouse","kind":"down","x":1,"y":2}`, `{"type":"touch","points":[{},{}]}`, `{"type":"key","key":"q"}`, `{"type":"navigate","url":"file:///"}`, `[]`, `null`, ``, `{"type":1}`,
	} {
		f.Add([]byte(seed))
	}
	var work sync.WaitGroup
	g := New(context.Background(), &work, Options{Log: zerolog.Nop(), Metrics: prometheus.NewRegistry()})
	w, err := newWatch(g, (&stage{}).play("ses_1"))
	if err != nil {
		f.Fatal(err)
	}
	w.open["A"] = true
	v := newViewer(w, principal.Principal{Name: "ann"})
	f.Fuzz(func(t *testing.T, text []byte) {
		v.take(ws.OpText, text)
		if len(v.replies) > maxReplies || v.size.width < 0 || v.size.width > 1<<14 || v.size.height < 0 || v.size.height > 1<<14 || v.target != "" && v.target != "A" {
			t.Errorf("%d replies, size %+v, target %q", len(v.replies), v.size, v.target)
		}
		for _, reply := range v.replies {
			if !json.Valid(reply) {
				t.Errorf("the answer is %q", reply)
			}
		}
		if p := paramsFor(v.size); p.MaxWidth > maxWidth || p.MaxHeight > maxHeight || p.Quality > maxQuality || slices.Min([]int{p.MaxWidth, p.MaxHeight}) < minSide {
			t.Errorf("%+v", p)
		}
	})
}
