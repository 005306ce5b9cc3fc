package natskv

import (
	"testing"
	"time"
)

// TestAnEventIsDeliveredToOneOfThoseWhoAsk, again until it is confirmed, and to whoever asks for the
// receiver later.
func TestAnEventIsDeliveredToOneOfThoseWhoAsk(t *testing.T) {
	server := start(t, t.TempDir())
	s := open(t, inProcess(t, server))
	late(t, s, "p", 0) // before the receiver was known
	one, other := s.Deliveries("hook"), open(t, inProcess(t, server)).Deliveries("hook")
	for _, d := range []*Deliveries{one, other} {
		if got, ok, err := d.Next(t.Context(), 10*time.Millisecond); ok || err != nil {
			t.Fatalf("a receiver that is new gets %+v, %v", got, err)
		}
	}
	late(t, s, "p", 1)
	first, ok, err := one.Next(t.Context(), time.Minute)
	if err != nil || !ok || first.Write != "1" || first.Tries != 1 {
		t.Fatalf("got %+v, %v, %v; want the event", first, ok, err)
	}
	if got, ok, err := other.Next(t.Context(), 10*time.Millisecond); ok || err != nil {
		t.Errorf("two launchers got the same event: %+v, %v", got, err)
	}
	unconfirmed := func(when string, want int) {
		t.Helper()
		for _, d := range []*Deliveries{one, other, open(t, inProcess(t, server)).Deliveries("hook")} {
			if n, err := d.Unconfirmed(t.Context()); err != nil || n != want {
				t.Errorf("%s: %d are not confirmed, %v; want %d", when, n, err, want)
			}
		}
	}
	unconfirmed("delivered", 1)
	if err := first.Again(time.Millisecond); err != nil {
		t.Fatal(err)
	}
	unconfirmed("to be delivered again", 1)
	again, ok, err := other.Next(t.Context(), time.Minute)
	if err != nil || !ok || again.Write != "1" || again.Tries != 2 || again.Place != first.Place {
		t.Fatalf("got %+v, %v, %v; want the event a second time", again, ok, err)
	}
	unconfirmed("delivered again", 1)
	if err := again.Done(); err != nil {
		t.Fatal(err)
	}
	unconfirmed("confirmed", 0)
	late(t, s, "p", 2)
	later, ok, err := open(t, inProcess(t, server)).Deliveries("hook").Next(t.Context(), time.Minute)
	if err != nil || !ok || later.Write != "2" || later.Tries != 1 {
		t.Errorf("got %+v, %v, %v; want the next event", later, ok, err)
	}
}

// TestAReceiverGetsWhatCameAfterTheStreamWasLost: the server forgot the receiver with the stream. What
// was published before the receiver was known again is delivered, also to who asks for it later.
func TestAReceiverGetsWhatCameAfterTheStreamWasLost(t *testing.T) {
	server := start(t, t.TempDir())
	p := startProxy(t, server)
	s := open(t, dialPlain(t, p.url()))
	d := s.Deliveries("hook")
	if got, ok, err := d.Next(t.Context(), 10*time.Millisecond); ok || err != nil {
		t.Fatalf("a receiver that is new gets %+v, %v", got, err)
	}
	deleteStream(t, s.events)
	if _, err := s.refresh(t.Context(), s.events); err != nil { // as each watch does
		t.Fatal(err)
	}
	late(t, s, "p", 1)
	p.set(func(p *proxy) { p.loseRequest = times(1, "$JS.API.CONSUMER.MSG.NEXT."+Stream) })
	if got, ok, err := d.Next(t.Context(), 10*time.Millisecond); ok || err != nil { // nobody said that it is known
		t.Fatalf("without an answer it gets %+v, %v", got, err)
	}
	if _, _, err := d.Next(t.Context(), time.Minute); err == nil {
		t.Error("the receiver was not forgotten")
	}
	got, ok, err := d.Next(t.Context(), time.Minute)
	if err != nil || !ok || got.Write != "1" {
		t.Fatalf("got %+v, %v, %v; want what came after the loss", got, ok, err)
	}
	if err := got.Done(); err != nil {
		t.Fatal(err)
	}
	late(t, s, "p", 2)
	got, ok, err = open(t, inProcess(t, server)).Deliveries("hook").Next(t.Context(), time.Minute)
	if err != nil || !ok || got.Write != "2" {
		t.Errorf("got %+v, %v, %v; want the next event", got, ok, err)
	}
}
