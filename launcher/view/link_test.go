package view

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"leasehold/launcher/api"
	"leasehold/launcher/principal"
)

// TestWhoHasALink: they act on the pages that are there, and see no more once the session is another's.
func TestWhoHasALink(t *testing.T) {
	var work sync.WaitGroup
	g := New(context.Background(), &work, Options{Log: zerolog.Nop(), Metrics: prometheus.NewRegistry()})
	p := (&stage{}).play("ses_1")
	w, err := newWatch(g, p)
	if err != nil {
		t.Fatal(err)
	}
	who := principal.OfLink("lnk_1")
	v := newViewer(w, who)
	for kind := range inputs {
		message, _ := json.Marshal(map[string]string{"type": kind, "url": "https://shop.example"})
		v.replies = nil
		v.take(1, message)
		refused := len(v.replies) == 1 && strings.Contains(string(v.replies[0]), "a sign-in link is for the pages that are open")
		leadsOut := kind == "navigate" || kind == "new_tab" || kind == "file" || kind == "copy" || kind == "cut"
		if refused != leadsOut {
			t.Errorf("%s: answered %s", kind, v.replies)
		}
	}
	// told is what a viewer is sent by now.
	told := func(v *viewer) (all string, over bool) {
		texts, _, end := v.next(time.Now())
		return string(bytes.Join(texts, []byte("\n"))), end != nil
	}
	reviewer := newViewer(w, principal.Principal{Name: "whoever"})
	w.viewers[v], w.viewers[reviewer] = true, true
	p.exchanges(t, "payroll.csv")
	p.step = "transfer"
	for _, has := range []*viewer{reviewer, v} {
		p.takes(has.who.Name)
		w.tellSession()
		w.tell(kindTabs, tabsMessage{Type: "tabs"})
		w.opened(pageFrame{page: "T"}, json.RawMessage(`{"backendNodeId":1}`))
		all, over := told(has)
		if over {
			t.Errorf("while %s has the session it ends", has.who.Name)
		}
		for _, kind := range []string{`"type":"session"`, `"type":"tabs"`, `"type":"person"`} {
			if !strings.Contains(all, kind) {
				t.Errorf("%s is not sent %s: %s", has.who.Name, kind, all)
			}
		}
		for _, secret := range []string{"worker-7", "task_101", "transfer", "payroll.csv"} {
			if strings.Contains(all, secret) == has.who.Link {
				t.Errorf("%s is sent %s: %v, in %s", has.who.Name, secret, !has.who.Link, all)
			}
		}
	}
	if refused := string(v.askForFiles("T", false)); !strings.Contains(refused, "a sign-in link is for the pages that are open") {
		t.Errorf("who has the link is not told why they cannot choose a file: %s", refused)
	}
	p.takes("Ann")
	v.take(1, []byte(`{"type":"reload"}`))
	if all, _ := told(v); !strings.Contains(all, `"type":"refused"`) || strings.Contains(all, "Ann") {
		t.Errorf("who may not go on is told %s", all)
	}
	w.tellSession()
	if all, over := told(v); !over || strings.Contains(all, "Ann") {
		t.Errorf("when another person has the session, it ends for them: %v, and they are told %s", over, all)
	}
}

// TestALinkLeavesPlacesToOthers: whoever has it opens it as often as they like, and does not keep a reviewer,
// or who has another link, from watching.
func TestALinkLeavesPlacesToOthers(t *testing.T) {
	var work sync.WaitGroup
	g := New(context.Background(), &work, Options{Log: zerolog.Nop(), Metrics: prometheus.NewRegistry()})
	p := (&stage{}).play("ses_1")
	w, err := newWatch(g, p)
	if err != nil {
		t.Fatal(err)
	}
	g.watches["ses_1"] = w // it is not run: there is no browser
	var last api.Connection
	for n := range MaxViewers {
		c, err := g.Open(p, principal.OfLink("lnk_1"))
		var problem *api.Problem
		if full := errors.As(err, &problem) && problem.Code == api.CodeTooManyViewers; full != (n >= MaxLinkViewers) {
			t.Errorf("view %d of the link: %v", n+1, err)
		}
		if err == nil {
			last = c
		}
	}
	for _, who := range []principal.Principal{{Name: "a reviewer"}, principal.OfLink("lnk_2")} {
		if _, err := g.Open(p, who); err != nil {
			t.Errorf("%s: %v", who.Name, err)
		}
	}
	last.Cancel()
	if _, err := g.Open(p, principal.OfLink("lnk_1")); err != nil {
		t.Errorf("the link, when a view of it is closed: %v", err)
	}
}

// TestALinkJoinsAWatch that has not yet seen that its person has the session.
func TestALinkJoinsAWatch(t *testing.T) {
	var work sync.WaitGroup
	g := New(context.Background(), &work, Options{Log: zerolog.Nop(), Metrics: prometheus.NewRegistry()})
	p := (&stage{}).play("ses_1")
	w, err := newWatch(g, p)
	if err != nil {
		t.Fatal(err)
	}
	w.tellSession()
	w.tell(kindTabs, tabsMessage{Type: "tabs"})
	v := newViewer(w, principal.OfLink("lnk_1"))
	w.viewers[v] = true
	p.takes(v.who.Name)
	if _, _, end := v.next(time.Now()); end != nil {
		t.Errorf("it ends: %s", end.reason)
	}
	p.takes("")
	if _, _, end := v.next(time.Now()); end == nil {
		t.Error("it does not end when nobody has the session")
	}
}
