package view

import (
	"bytes"
	"image/jpeg"
	"testing"
	"time"
)

const (
	// moving is a document that scrolls for ever, and notes what a page can notice.
	moving = `<body style="margin:0">` + notices + `<script>for(let i=0;i<300;i++)document.write('<p style="background:hsl('+i*7+' 60% 80%)">'+i+' some text that scrolls by</p>');
let d=6;(function f(){scrollBy(0,d);if(scrollY<=0||scrollY+innerHeight>=document.documentElement.scrollHeight)d=-d;requestAnimationFrame(f)})()</script>`
	still = `<body style="margin:0">` + notices + `<h1>It stands still</h1>`
	// notices collects the events by which a page could notice that somebody watches.
	notices = `<script>seen=[];for(const n of ['focus','blur','resize','pageshow','pagehide','freeze','resume'])addEventListener(n,()=>seen.push(n));document.addEventListener('visibilitychange',()=>seen.push(document.visibilityState))</script>`
	// sees is what a page can see of its surroundings.
	sees = `[...seen,document.visibilityState,document.hasFocus(),innerWidth,innerHeight,outerWidth,outerHeight,devicePixelRatio,screenX].join()`
)

func TestWatching(t *testing.T) {
	s := newStage(t)
	target, page := s.open(still)

	t.Run("a page that stands still is pictured once", func(t *testing.T) {
		p := s.play("ses_1")
		before := s.eval(page, sees)
		v := p.watchAs(t, "ann")
		first := v.pictureOf(target)
		keep(t, "still", first)
		c, err := jpeg.DecodeConfig(bytes.NewReader(first.image))
		if err != nil || float64(c.Width) != first.Width || float64(c.Height) != first.Height || first.Scale != 1 {
			t.Errorf("%+v %v, want an image of the page's size: %+v", c, err, first.frameHead)
		}
		if n := v.count(time.Second); n != 0 {
			t.Errorf("%d pictures of a page in which nothing moves", n)
		}
		s.eval(page, `document.querySelector('h1').textContent='changed'`)
		if next := v.picture(); bytes.Equal(next.image, first.image) {
			t.Error("the picture of a page that changed is the same")
		}
		if n := v.count(time.Second); n != 0 {
			t.Errorf("%d pictures after the page stands still again", n)
		}
		if after := s.eval(page, sees); after != before {
			t.Errorf("the page can see that it is watched: %s, before %s", after, before)
		}
	})
	t.Run("a page that moves is pictured again and again", func(t *testing.T) {
		p := s.play("ses_2")
		s.load(page, moving)
		before := s.eval(page, sees)
		v := p.watchAs(t, "ann")
		last := v.picture()
		begun := time.Now()
		for range 10 {
			next := v.picture()
			if next.Sequence <= last.Sequence || next.ScrollY == last.ScrollY && bytes.Equal(next.image, last.image) {
				t.Errorf("%+v after %+v", next.frameHead, last.frameHead)
			}
			last = next
		}
		t.Logf("%.1f pictures a second", 10/time.Since(begun).Seconds())
		if after := s.eval(page, sees); after != before {
			t.Errorf("the page can see that it is watched: %s, before %s", after, before)
		}
	})
}
