package view

import (
	"context"
	"encoding/json"
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
	w, err := newWatch(g, (&stage{}).play("ses_1"))
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
	w.person = api.Person{Name: "whoever", Principal: who.Name}
	w.tell(kindTabs, tabsMessage{Type: "tabs"})
	if _, _, end := v.next(time.Now()); end != nil {
		t.Errorf("while they have the session it ends: %+v", end)
	}
	w.person = api.Person{Name: "Ann", Principal: "ann"}
	if _, _, end := v.next(time.Now()); end == nil {
		t.Error("when another person has the session, they see it")
	}
}
