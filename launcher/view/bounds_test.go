package view

import (
	"bytes"
	"context"
	"image/jpeg"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"leasehold/launcher/principal"
)

// TestWhoTakesNothingIsCutOff: a viewer that reads, and never says that it took a picture, gets two
// and then none, and is told why its connection ends.
func TestWhoTakesNothingIsCutOff(t *testing.T) {
	var work sync.WaitGroup
	g := New(context.Background(), &work, Options{Log: zerolog.Nop(), Metrics: prometheus.NewRegistry()})
	w, err := newWatch(g, (&stage{}).play("ses_1"))
	if err != nil {
		t.Fatal(err)
	}
	w.open["A"], w.used = true, "A"
	v := newViewer(w, principal.Principal{Name: "ann"})
	begun := time.Now()
	sees := func(sequence uint64, at time.Duration) (pictured bool, end *closing) {
		w.frames["A"] = newFrame(frameHead{Target: "A", Sequence: sequence}, []byte("a picture"))
		_, picture, end := v.next(begun.Add(at))
		return picture != nil, end
	}
	for i, want := range []bool{true, true, false, false} {
		if pictured, end := sees(uint64(i+1), time.Duration(i)*time.Second); pictured != want || end != nil {
			t.Errorf("picture %d: sent %v, the end %v", i+1, pictured, end)
		}
	}
	if _, end := sees(5, takeTimeout); end != nil {
		t.Errorf("it is cut off after %v: %+v", takeTimeout, end)
	}
	if _, end := sees(6, takeTimeout+time.Second); end == nil || end.code != ws.StatusPolicyViolation || !strings.Contains(end.reason, "a picture was not taken in time") {
		t.Errorf("the end is %+v", end)
	}
}

// TestTooMuchToShow: pages that paint more than anybody can see, or nothing any more, are shown
// within bounds, and the worker is answered as ever.
func TestTooMuchToShow(t *testing.T) {
	s := newStage(t)

	t.Run("a page of 4 K that paints all of itself with each frame", func(t *testing.T) {
		p := s.play("ses_1")
		target, page := s.open(`<body style="margin:0"><canvas id="c" width="3840" height="2160"></canvas><script>painted=0;const g=document.getElementById("c").getContext("2d");
(function f(){g.fillStyle="hsl("+painted++*7%360+" 60% 60%)";g.fillRect(0,0,3840,2160);for(let i=0;i<100;i++)g.strokeText(painted,Math.random()*3840,Math.random()*2160);requestAnimationFrame(f)})()</script>`)
		s.call(page, "Emulation.setDeviceMetricsOverride", map[string]any{"width": 3840, "height": 2160, "deviceScaleFactor": 1, "mobile": false}, nil)
		v := p.watchAs(t, "ann")
		v.says(`{"type":"size","width":3840,"height":2160,"dpr":2,"quality":100}`)
		for i := range 5 {
			shown := v.pictureOf(target)
			c, err := jpeg.DecodeConfig(bytes.NewReader(shown.image))
			if err != nil || c.Width > maxWidth || c.Height > maxHeight || len(shown.image) > maxImage {
				t.Errorf("a picture of %d by %d and %d bytes, %v: want at most %d by %d and %d", c.Width, c.Height, len(shown.image), err, maxWidth, maxHeight, maxImage)
			}
			if got := s.eval(page, strconv.Itoa(i)+"+1"); got != strconv.Itoa(i+1) {
				t.Errorf("the worker is answered %s", got)
			}
		}
		// Who reads none of them has two, of at least three, before it takes them.
		idle := p.watchAs(t, "ben")
		for range maxUntaken + 1 {
			v.pictureOf(target)
		}
		for range maxUntaken {
			idle.untakenPicture(t)
		}
		newest := v.pictureOf(target).Sequence
		idle.says(`{"type":"ack","sequence":%d}`, newest)
		if next := idle.pictureOf(target); next.Sequence < newest {
			t.Errorf("after two came picture %d, want the newest: %d or later", next.Sequence, newest)
		}
		s.closePage(target)
	})

	t.Run("a page that stalls", func(t *testing.T) {
		p := s.play("ses_2")
		stalled, page := s.open(moving)
		v := p.watchAs(t, "ann")
		v.says(`{"type":"show","target":%q}`, stalled)
		v.pictureOf(stalled)
		s.worker.Post(page, "Runtime.evaluate", map[string]any{"expression": "for(;;);"})

		other, otherPage := s.open(moving)
		if got := s.eval(otherPage, "6*7"); got != "42" {
			t.Errorf("the worker is answered %s on another page", got)
		}
		v.message("tabs", func(m map[string]any) bool { return tabOf(v.tabs, other).Target == other })
		v.says(`{"type":"show","target":%q}`, other)
		v.pictureOf(other)

		s.call(page, "Runtime.terminateExecution", nil, nil)
		s.closePage(other)
		s.load(page, moving)
		v.says(`{"type":"show","target":%q}`, stalled)
		v.pictureOf(stalled)
		if got := s.eval(page, "6*7"); got != "42" {
			t.Errorf("the worker is answered %s on the page that stalled", got)
		}
	})
}

// untakenPicture is the next picture, of which nothing is said to the launcher.
func (s *seat) untakenPicture(t *testing.T) {
	t.Helper()
	for {
		m, err := s.one(patience)
		if err != nil {
			t.Fatalf("no picture: %v", err)
		}
		if _, ok := m.(picture); ok {
			return
		}
	}
}
