package natskv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"leasehold/lease"
)

// late announces a late write of the profile with a number.
func late(t *testing.T, s *Store, profile string, number int) {
	t.Helper()
	if err := s.Announce(patient(t), lease.Event{Event: lease.EventLateWrite, ProfileID: profile, At: t0, Write: fmt.Sprint(number)}); err != nil {
		t.Fatal(err)
	}
}

func numbersOf(events []lease.Published) (numbers []string) {
	for _, e := range events {
		numbers = append(numbers, e.Write)
	}
	return numbers
}

// from reads everything after a place, page by page.
func from(t *testing.T, s *Store, after lease.Place) (all []lease.Published, lost lease.Loss) {
	t.Helper()
	for {
		page, err := s.EventsAfter(t.Context(), after)
		if err != nil {
			t.Fatal(err)
		}
		if page.Lost != lease.NothingLost {
			lost = page.Lost
		}
		if page.Through == after {
			return all, lost
		}
		all, after = append(all, page.Events...), page.Through
	}
}

// TestReadingGoesOnFromAnyPlace: whoever was away gets what came since, in order and once;
// what is no event is passed over.
func TestReadingGoesOnFromAnyPlace(t *testing.T) {
	s := single(t)
	var want []string
	for i := range 600 {
		late(t, s, "p", i)
		want = append(want, fmt.Sprint(i))
		if i%100 == 0 {
			if _, err := s.events.js.Publish(t.Context(), "leasehold.late_write.p", []byte("no event")); err != nil {
				t.Fatal(err)
			}
		}
	}
	all, lost := from(t, s, lease.Place{})
	if got := numbersOf(all); lost != "" || !slices.Equal(got, want) {
		t.Fatalf("%d events, lost %q: want 600 in order", len(got), lost)
	}
	for _, i := range []int{0, 1, 100, 300, 598, 599} {
		for _, at := range []lease.Place{all[i].Place, {Sequence: all[i].Place.Sequence}} {
			if rest, lost := from(t, s, at); lost != "" || !slices.Equal(numbersOf(rest), want[i+1:]) {
				t.Errorf("after %s: %d events, lost %q: want %d", at, len(rest), lost, len(want)-i-1)
			}
		}
	}
	now, err := s.EventsAfter(t.Context(), lease.PlaceNow)
	if err != nil || now.Through != all[599].Place || len(now.Events) > 0 {
		t.Errorf("now is %+v, %v, want %s", now, err, all[599].Place)
	}
	for _, at := range []lease.Place{{Sequence: all[10].Place.Sequence, Check: 1}, {Sequence: 100000}} {
		if rest, lost := from(t, s, at); lost != lease.LostStream || len(rest) != 600 {
			t.Errorf("a place %s of another stream: %d events, lost %q: want all, and %q", at, len(rest), lost, lease.LostStream)
		}
	}
}

// TestReadingSaysThatTheOldestLeft: what has left a full stream is not passed over in silence.
func TestReadingSaysThatTheOldestLeft(t *testing.T) {
	s := bounded(t, true)
	late(t, s, "p", 0)
	first, _ := from(t, s, lease.Place{})
	for i := range 400 {
		if err := s.Announce(patient(t), lease.Event{Event: lease.EventLateWrite, ProfileID: "p", At: t0, Write: fmt.Sprint(i + 1), Reason: string(make([]byte, 300))}); err != nil {
			t.Fatal(err)
		}
	}
	rest, lost := from(t, s, first[0].Place)
	if lost != lease.LostOldest || len(rest) == 0 || len(rest) >= 400 || rest[len(rest)-1].Write != "400" {
		t.Errorf("%d events, lost %q: want the newest, and that older ones have left", len(rest), lost)
	}
	if kept, lost := from(t, s, lease.Place{}); lost != "" || len(kept) != len(rest) {
		t.Errorf("everything that is kept: %d events, lost %q", len(kept), lost)
	}
	if _, lost := from(t, s, lease.Place{Sequence: rest[0].Place.Sequence - 1, Check: 7}); lost != "" {
		t.Errorf("from the last one that left: lost %q", lost)
	}
}

// following reads on in the background, as a launcher does.
type following struct {
	pages  chan lease.EventPage
	cancel context.CancelFunc
	done   chan struct{}
}

func followEvents(t *testing.T, s *Store, at lease.Place) *following {
	ctx, cancel := context.WithCancel(t.Context())
	f := &following{make(chan lease.EventPage, 100), cancel, make(chan struct{})}
	go func() {
		defer close(f.done)
		for ctx.Err() == nil {
			err := s.FollowEvents(ctx, at, func(p lease.EventPage) {
				at = p.Through
				f.pages <- p
			})
			if !errors.Is(err, lease.ErrUnavailable) {
				t.Errorf("the reader ended with %v", err)
			}
			pause(ctx, 50*time.Millisecond)
		}
	}()
	t.Cleanup(func() { cancel(); <-f.done })
	return f
}

// await collects events until the one with the number, and what was lost.
func (f *following) await(t *testing.T, number string) (numbers []string, lost []lease.Loss) {
	t.Helper()
	for {
		select {
		case p := <-f.pages:
			if p.Lost != "" {
				lost = append(lost, p.Lost)
			}
			numbers = append(numbers, numbersOf(p.Events)...)
			if len(numbers) > 0 && numbers[len(numbers)-1] == number {
				return numbers, lost
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("only %v came, want %s", numbers, number)
		}
	}
}

// TestAReaderGoesOnAfterTheServerWasAway, without a gap and without anything twice.
func TestAReaderGoesOnAfterTheServerWasAway(t *testing.T) {
	srv := start(t, t.TempDir())
	p := startProxy(t, srv)
	s, other := open(t, dialPlain(t, p.url())), open(t, inProcess(t, srv))
	f := followEvents(t, s, lease.PlaceNow)
	<-f.pages
	late(t, other, "p", 1)
	f.await(t, "1")
	mend := p.cut()
	for i := range 5 {
		late(t, other, "p", i+2)
	}
	mend()
	if got, lost := f.await(t, "6"); !slices.Equal(got, []string{"2", "3", "4", "5", "6"}) || lost != nil {
		t.Errorf("%v, lost %v", got, lost)
	}
}

// TestAReaderSaysThatTheStreamWasMadeAnew: what follows is another stream.
func TestAReaderSaysThatTheStreamWasMadeAnew(t *testing.T) {
	s := single(t)
	f := followEvents(t, s, lease.PlaceNow)
	<-f.pages
	late(t, s, "p", 1)
	late(t, s, "p", 2)
	f.await(t, "2")
	deleteStream(t, s.events)
	soon(t, func() error {
		_, err := s.events.js.CreateStream(t.Context(), eventsConfig(0))
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return nil
		}
		return err
	})
	late(t, s, "p", 3)
	got, lost := f.await(t, "3")
	if !slices.Equal(got, []string{"3"}) || !slices.Equal(lost, []lease.Loss{lease.LostStream}) {
		t.Errorf("%v, lost %v: want 3 alone, and %s", got, lost, lease.LostStream)
	}
}
